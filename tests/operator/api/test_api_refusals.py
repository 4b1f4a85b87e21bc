"""What must be refused is refused, in a sentence that names the field and the limit."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.api import InvalidResource, LLMDeployment, parse

REFUSED = yaml.safe_load((Path(__file__).parents[2] / "data/kubernetes/refused.yaml").read_text())


def document(spec: dict[str, Any] | None = None, name: str = "chat") -> dict[str, Any]:
    whole = {"model": {"uri": "pvc://models/m"}, **(spec or {})}
    if spec and "model" in spec:
        whole["model"] = {"uri": "pvc://models/m", **spec["model"]}
    return {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": name, "namespace": "team"},
        "spec": whole,
    }


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: entry["case"])
def test_refused_with_a_sentence(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidResource) as refusal:
        parse(document(entry.get("spec"), entry.get("name", "chat")))
    assert len(refusal.value.faults) == 1
    assert entry["says"] in refusal.value.faults[0]


@pytest.mark.parametrize("entry", [e for e in REFUSED if e.get("strict")], ids=lambda entry: entry["case"])
def test_from_the_api_server_unknown_fields_are_dropped(entry: dict[str, Any]) -> None:
    assert isinstance(parse(document(entry["spec"]), strict=False), LLMDeployment)


def test_every_fault_has_its_own_sentence() -> None:
    spec = {"replicas": -1, "paused": 3, "scaling": {"minReplicas": 5}, "admission": {"mode": "auto"}}
    with pytest.raises(InvalidResource) as refusal:
        parse(document(spec))
    assert [fault.split()[0] for fault in refusal.value.faults] == [
        "spec.scaling.minReplicas",
        "spec.admission.mode",
        "spec.replicas",
        "spec.paused",
    ]


def test_a_megabyte_is_not_repeated_back() -> None:
    with pytest.raises(InvalidResource) as refusal:
        parse(document({"model": {"uri": "x" * 1_000_000}, "y" * 1_000_000: 1}))
    assert len(refusal.value.faults) == 2
    assert all(len(fault) < 400 for fault in refusal.value.faults)


def test_a_document_of_another_kind_is_named() -> None:
    with pytest.raises(InvalidResource) as refusal:
        parse({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}, "extra": 1})
    assert refusal.value.faults == (
        'apiVersion must be sluice.dev/v1alpha1, not "v1"',
        'kind must be LLMDeployment, not "Pod"',
        "extra is not a field",
        "spec.model is required",
    )


@pytest.mark.parametrize("given_document", [None, [], 3, "text", {}, {"spec": None}])
def test_what_is_no_resource_at_all_is_refused(given_document: Any) -> None:
    with pytest.raises(InvalidResource):
        parse(given_document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(["model", "engine", "slo", "scaling", "admission", "rollout", "replicas", "paused", "other"])


@given(st.dictionaries(FIELDS, JSON, max_size=4), JSON, st.booleans())
def test_any_document_is_read_or_refused_but_never_breaks_the_reader(spec: Any, metadata: Any, strict: bool) -> None:
    try:
        parse({**document(), "metadata": metadata, "spec": spec}, strict=strict)
    except InvalidResource as refusal:
        assert refusal.faults
        assert all(fault.strip() for fault in refusal.faults)
