"""A step-time model as text: what `--pace` and `--profile` take."""

import pytest

from sluice import contract
from sluice_perfmodel.step_time import TERMS, StepTimeModel, parse_model


def test_the_terms_are_the_contracts() -> None:
    assert TERMS == contract.STEP_MODEL_TERMS


def test_omitted_terms_are_zero() -> None:
    assert parse_model("base=0.03, kv_token=2e-6") == StepTimeModel(base=0.03, kv_token=2e-6)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fast", "expected term=seconds"),
        ("base=0.1,base=0.2", "given twice"),
        ("base=soon", "must be seconds"),
        ("base=inf", "0 or more"),
        ("base=0.1,sequence=-1", "sequence must be 0 or more"),
        ("sequence=1", "base must be above 0"),
    ],
)
def test_an_invalid_text_names_its_fault(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_model(text)
