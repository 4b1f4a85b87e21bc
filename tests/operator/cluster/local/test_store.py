"""Server-side apply in memory."""

from sluice_operator.cluster.client import Object
from sluice_operator.cluster.local.store import ObjectStore


def store() -> ObjectStore:
    return ObjectStore(lambda: 1_700_000_000.0)


def item(**spec: object) -> Object:
    return {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "spec": spec}


def test_a_field_that_was_applied_and_is_left_out_is_removed() -> None:
    objects = store()
    objects.apply(item(a=1, b={"x": 1, "y": 2}))
    assert objects.apply(item(b={"y": 2}))["spec"] == {"b": {"y": 2}}


def test_fields_of_another_writer_are_kept() -> None:
    objects = store()
    objects.insert(item(theirs=1, shared={"theirs": 1}), {"metadata": {"name": "o", "uid": "u"}})
    objects.apply(item(shared={"ours": 1}))
    assert objects.apply(item())["spec"] == {"theirs": 1, "shared": {"theirs": 1}}


def test_the_generation_moves_with_the_spec_and_a_no_op_changes_nothing() -> None:
    objects = store()
    first = objects.apply(item(a=1))
    again = objects.apply(item(a=1))
    assert again == first
    assert objects.apply(item(a=2))["metadata"]["generation"] == first["metadata"]["generation"] + 1


def test_status_is_not_applied_and_survives_an_apply() -> None:
    objects = store()
    objects.apply({**item(a=1), "status": {"forged": True}})
    objects.set_status("ConfigMap", "n", "c", {"real": True})
    assert objects.apply(item(a=2))["status"] == {"real": True}


def test_reads_are_copies() -> None:
    objects = store()
    objects.apply(item(a=1))
    (found := objects.get("ConfigMap", "n", "c") or {})["spec"]["a"] = 9
    assert found["spec"]["a"] == 9
    assert (objects.get("ConfigMap", "n", "c") or {})["spec"]["a"] == 1


def test_create_never_changes_what_exists() -> None:
    objects = store()
    assert objects.create(item(a=1)) is not None
    assert objects.create(item(a=2)) is None
    assert (objects.get("ConfigMap", "n", "c") or {})["spec"]["a"] == 1
