"""A measured step-time profile as a file: `sluice bench --profile-out` writes it, `sluice simulate --profile` reads it."""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from sluice_perfmodel.step_time import TERMS, StepTimeModel, StepWork

KIND: Final = "sluice step-time profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProfile:
    """The step-time model of one engine on one machine, and what the measurement covered."""

    words: str  # what was measured, where and when
    model: StepTimeModel
    kv_tokens: int  # capacity of the KV cache
    longest_prompt: int  # tokens; beyond it the fitted terms extrapolate

    def to_json(self) -> str:
        """The content of the file."""
        value = {
            "kind": KIND,
            "words": self.words,
            "step_seconds": {term: getattr(self.model, term) for term in TERMS},
            "error_ratio": self.model.error_ratio,
            "steps": self.model.steps,
            "kv_tokens": self.kv_tokens,
            "longest_prompt": self.longest_prompt,
        }
        return json.dumps(value, indent=2) + "\n"


def takes_time(model: StepTimeModel) -> bool:
    """True if every step takes time. A fit may have a base of 0 where the other terms explain all of a step."""
    decode, prefill = StepWork(sequences=1, kv_tokens=1), StepWork(prefill_tokens=1, prefill_context=0.5)
    return model.predict(decode) > 0.0 and model.predict(prefill) > 0.0


def parse_profile_file(text: str) -> MeasuredProfile:
    """Parse the content of a profile file. Raises ValueError with a clause that can follow the file's name."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from error
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise ValueError(
            'is no profile: `sluice bench URL --profile-out FILE` writes one, with "kind" as its first field'
        )
    seconds = value.get("step_seconds")
    if not isinstance(seconds, dict) or set(seconds) != set(TERMS):
        raise ValueError(f"must have step_seconds with {', '.join(TERMS)}")
    terms = {term: _number(seconds, term) for term in TERMS}
    model = StepTimeModel(**terms, error_ratio=_number(value, "error_ratio"), steps=int(_number(value, "steps")))
    if not takes_time(model):
        raise ValueError("has step_seconds by which a decode or a prompt takes no time: measure again")
    return MeasuredProfile(
        words=str(value.get("words", "measured")),
        model=model,
        kv_tokens=_positive(value, "kv_tokens"),
        longest_prompt=_positive(value, "longest_prompt"),
    )


def _number(values: dict[str, Any], name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"must have {name}, a number of 0 or more, not {value!r}")
    return float(value)


def _positive(values: dict[str, Any], name: str) -> int:
    found = int(_number(values, name))
    if found < 1:
        raise ValueError(f"must have {name} of 1 or more, not {found}")
    return found
