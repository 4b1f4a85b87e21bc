"""The list of refused models, which the operator reads without the engine, agrees with what the engine decides at load."""

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from sluice.models import support as model_support
from sluice.models.support import CHECKED_TYPES, unserved
from tests.engine.families import FAMILIES
from tests.engine.model.test_introspection import REFUSED


def test_the_checked_types_are_those_that_tests_compare_with_transformers() -> None:
    assert {make().model_type for make in FAMILIES.values()} == set(CHECKED_TYPES)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_served_family_is_not_refused(family: str) -> None:
    assert unserved(FAMILIES[family]().to_dict()) is None


@pytest.mark.parametrize("kind", sorted(set(REFUSED) - {"bidirectional"}))
def test_what_the_loader_refuses_is_refused_by_name(kind: str) -> None:
    config = REFUSED[kind][0].to_dict() | {"architectures": ["ItsForCausalLM"]}
    text = unserved(config)
    assert text is not None and text.startswith("is of architecture ItsForCausalLM, which ")
    assert text.endswith("phi3.") and "llama, mistral" in text


def test_every_refused_type_is_one_of_transformers() -> None:
    assert set(model_support._REFUSED_TYPES) <= set(CONFIG_MAPPING)


def test_names_of_a_config_are_quoted_short_and_printable() -> None:
    text = unserved({"model_type": "mamba", "architectures": ["a\n" * 5000]})
    assert text is not None and len(text) < 500 and "\n" not in text
    assert len(unserved({"quantization_config": {"quant_method": "x" * 5000}}) or "") < 400
    assert len(unserved({"model_type": "new", "layer_types": [str(kind) for kind in range(5000)]}) or "") < 500
