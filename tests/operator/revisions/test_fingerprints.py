"""The fingerprint of the spec changes exactly where the pods change."""

from typing import Any

import pytest

from sluice_operator import render
from sluice_operator.revisions.values import spec_fingerprint, template_fingerprint, with_secret
from tests.operator.render.test_render import CHANGES, RETARGETING, WITHOUT_CHILD, resource

FIELDS: dict[str, Any] = {**CHANGES, **RETARGETING, **WITHOUT_CHILD}


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_changes_the_fingerprint_where_it_changes_the_pods(path: str) -> None:
    before, after = resource(), resource({path: FIELDS[path]})
    templates = [render.pod_template(each, render.PodDefaults("engine:1"), "t") for each in (before, after)]
    assert (templates[0] != templates[1]) == (spec_fingerprint(before) != spec_fingerprint(after))


def test_a_field_at_its_default_is_as_if_it_was_not_given() -> None:
    given = resource({"engine.scheduling.policy": "fcfs", "model.dtype": "auto", "rollout.drainSeconds": 300})
    assert spec_fingerprint(given) == spec_fingerprint(resource())


@pytest.mark.parametrize("asks", [False, True])
def test_the_operators_secrets_can_be_replaced_in_every_template_and_are_no_part_of_its_fingerprint(asks: bool) -> None:
    defaults = render.PodDefaults("engine:1", asks_read_token=asks)
    for path, value in FIELDS.items():
        old, new = (render.pod_template(resource({path: value}), defaults, token) for token in ("old", "new"))
        secret = render.names.admin_secret("chat", "new")
        assert old != new and with_secret(old, secret) == new
        assert template_fingerprint(old) == template_fingerprint(new)
