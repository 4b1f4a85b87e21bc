"""The record on the Deployment: read back as written, bounded, and adopted from a Deployment without one."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sluice import contract
from sluice_operator.api import Rollout
from sluice_operator.cluster.client import Object
from sluice_operator.render.deployment import fingerprint
from sluice_operator.revisions.choose import choose
from sluice_operator.revisions.record import MAX_BYTES, read_record, record_of, with_revision
from sluice_operator.revisions.values import Asked, Choice, Live, image_of
from tests.operator.revisions.test_choose import NOW, asked

LIVE = Live(datetime(2026, 11, 25, 12, 0, tzinfo=UTC))
READY = {"status": "True", "observedGeneration": 3}


def deployment(pod: Object | None = None, **annotations: str) -> Object:
    metadata: dict[str, Any] = {"name": "chat", "annotations": annotations}
    return {"metadata": metadata, "spec": {"replicas": 1, "template": pod or {}}}


def chosen(what: Asked) -> Choice:
    return choose(None, what, LIVE, Rollout())


def test_a_record_is_read_back_as_it_was_written() -> None:
    good = choose(chosen(asked()).record, asked(), Live(NOW, is_ready=True), Rollout()).record
    choice = choose(good, asked("B"), LIVE, Rollout())
    written = with_revision(deployment(), choice)
    assert choice.record.good is not None
    assert read_record(written) == choice.record
    assert written["spec"] == {"replicas": 1, "template": choice.pod}
    assert written["metadata"]["annotations"][contract.ANNOTATION_TEMPLATE] == fingerprint(choice.pod)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"image": 3}', json.dumps({"image": "a", "applied": {}})])
def test_an_unreadable_record_is_none(text: str) -> None:
    assert read_record(deployment(None, **{contract.ANNOTATION_REVISIONS: text})) is None


CHANGED: list[Object] = [
    {},
    {"spec": None},
    {"spec": {"volumes": "none", "containers": "none"}},
    {"metadata": None, "spec": []},
    asked(image="other:1").render("other:1"),
]


@pytest.mark.parametrize("pod", CHANGED, ids=str)
def test_a_record_whose_template_another_writer_has_changed_is_not_used(pod: Object) -> None:
    good = choose(chosen(asked()).record, asked(), Live(NOW, is_ready=True), Rollout()).record
    written = with_revision(deployment(), choose(good, asked("B"), LIVE, Rollout()))
    text = written["metadata"]["annotations"][contract.ANNOTATION_REVISIONS]
    for revision in ("applied", "good"):
        edited = json.loads(text)
        edited[revision]["pod"] = pod
        assert read_record(deployment(None, **{contract.ANNOTATION_REVISIONS: json.dumps(edited)})) is None


def test_a_record_never_exceeds_what_an_object_may_carry() -> None:
    long = "x" * (MAX_BYTES * 2 // 3)
    first, second = replace(asked(long), spec="A"), replace(asked(long + "y"), spec="B")
    good = choose(chosen(first).record, first, Live(NOW, is_ready=True), Rollout()).record
    two = with_revision(deployment(), choose(good, second, LIVE, Rollout()))
    kept = read_record(two)
    assert kept is not None and kept.good is None
    none = with_revision(deployment(), chosen(asked("x" * MAX_BYTES)))
    assert contract.ANNOTATION_REVISIONS not in none["metadata"]["annotations"]
    for each in (two, none):
        assert sum(len(text) for text in each["metadata"]["annotations"].values()) <= MAX_BYTES + 100


@pytest.mark.parametrize("ready", [READY, {"status": "False", "observedGeneration": 3}])
def test_a_template_of_the_same_rendering_is_adopted_whatever_its_pods_do(ready: dict[str, Any]) -> None:
    what = asked()
    old = deployment(
        {"stored": "with defaults"}, **{contract.ANNOTATION_TEMPLATE: fingerprint(what.render("engine:1"))}
    )
    record = record_of(old, what, ready, 3)
    assert record is not None and record.applied.pod == what.render("engine:1")
    assert choose(record, what, LIVE, Rollout()).pending is None


def test_a_template_of_an_earlier_operator_is_adopted_as_it_is_while_its_pods_serve_this_spec() -> None:
    live = {**asked(image="engine:0").render("engine:0"), "metadata": {"creationTimestamp": None, "labels": {"a": "b"}}}
    old = deployment(live, **{contract.ANNOTATION_TEMPLATE: "0123456789abcdef"})
    choice = choose(record_of(old, asked(), READY, 3), asked(), LIVE, Rollout())
    assert choice.pod == {**live, "metadata": {"labels": {"a": "b"}}}
    assert choice.pending is not None and choice.pending.image == "engine:1"


@pytest.mark.parametrize(
    "ready", [{}, {"status": "True", "observedGeneration": 2}, {"status": "False", "observedGeneration": 3}], ids=str
)
def test_a_template_that_may_be_of_an_earlier_spec_is_rendered_anew(ready: dict[str, Any]) -> None:
    old = deployment(asked(image="engine:0").render("engine:0"), **{contract.ANNOTATION_TEMPLATE: "0123456789abcdef"})
    assert image_of(choose(record_of(old, asked(), ready, 3), asked(), LIVE, Rollout()).pod) == "engine:1"
