"""The golden Deployments as those of an earlier operator: what this one renders otherwise moves none of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice_operator import render
from sluice_operator.api import LLMDeployment, Rollout, parse
from sluice_operator.cluster.client import Object
from sluice_operator.revisions.choose import choose
from sluice_operator.revisions.record import record_of, with_revision
from sluice_operator.revisions.values import Asked, Choice, Live, spec_fingerprint
from tests.operator.render.test_render_goldens import DATA, IMAGE, INPUTS
from tests.operator.revisions.test_choose import NOW

TOKEN = "not-a-secret"
READY = {"status": "True", "observedGeneration": 1}
RENDERINGS: dict[str, dict[str, Any]] = {
    "a field more": {"hostUsers": False},
    "another grace period": {"terminationGracePeriodSeconds": 7},
}


def golden(given: Path) -> Object:
    """The Deployment that the golden file has."""
    documents = yaml.safe_load_all((DATA / "output" / given.name).read_text())
    return next(each for each in documents if each["kind"] == "Deployment")


def asked(resource: LLMDeployment, image: str, defaults: dict[str, Any], **spec: Any) -> Asked:
    """What an operator with these settings asks for; `spec` is what its renderer makes otherwise in every pod."""

    def rendered(default: str) -> Object:
        pod = render.pod_template(resource, render.PodDefaults(default, **defaults), TOKEN)
        return {**pod, "spec": pod["spec"] | spec}

    return Asked(
        spec=spec_fingerprint(resource),
        image=image,
        has_own_image=resource.spec.engine.image is not None,
        secret=render.names.admin_secret(resource.name, TOKEN),
        render=rendered,
    )


def after(old: Object, what: Asked) -> Choice:
    """The choice of a new process."""
    return choose(record_of(old, what, READY, 1), what, Live(NOW), Rollout())


@pytest.mark.parametrize("given", INPUTS, ids=lambda path: path.stem)
def test_the_same_operator_keeps_a_golden_and_offers_nothing(given: Path) -> None:
    old, resource = golden(given), parse(yaml.safe_load(given.read_text()))
    choice = after(old, asked(resource, IMAGE, {}))
    assert (choice.pod, choice.is_kept, choice.pending) == (old["spec"]["template"], True, None)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("change", RENDERINGS.values(), ids=RENDERINGS)
@pytest.mark.parametrize("given", INPUTS, ids=lambda path: path.stem)
def test_an_operator_that_renders_otherwise_keeps_a_golden(given: Path, change: dict[str, Any], recorded: bool) -> None:
    old, resource = golden(given), parse(yaml.safe_load(given.read_text()))
    if recorded:
        old = with_revision(old, after(old, asked(resource, IMAGE, {})))
    choice = after(old, asked(resource, IMAGE, {}, **change))
    assert (choice.pod, choice.is_kept) == (old["spec"]["template"], True)
    assert choice.pending is not None and not choice.pending.changes_image


@pytest.mark.parametrize("given", INPUTS, ids=lambda path: path.stem)
def test_other_settings_keep_a_golden(given: Path) -> None:
    old, resource = golden(given), parse(yaml.safe_load(given.read_text()))
    for image, defaults in (("sluice/engine:next", {}), (IMAGE, {"user": None})):
        choice = after(old, asked(resource, image, defaults))
        assert (choice.pod, choice.is_kept) == (old["spec"]["template"], True), (image, defaults)
