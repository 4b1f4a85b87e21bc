"""Reads a replica's `/load` document. A document that is out of bounds is refused as a whole: such a replica is not used."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from sluice import contract
from sluice_perfmodel.step_time import StepTimeModel

MAX_BYTES: Final = 16 * 1024
_MOST: Final = 1e12  # of any number in the document


class BadLoad(Exception):
    """The document is not what `contract` describes. The message names the field."""


@dataclass(frozen=True, slots=True)
class Load:
    """The document as values; lengths in tokens."""

    model: str
    ready: bool
    running: int
    waiting: int
    limit: int
    ttft_target: float  # seconds
    prefill_tokens: float
    output_tokens: float
    kv_held: float
    kv_total: float
    step_model: StepTimeModel | None


def parse_load(body: bytes) -> Load:
    """Raises BadLoad."""
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise BadLoad(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadLoad("it is not a JSON object")
    model, ready = found.get("model"), found.get("ready")
    if not isinstance(model, str) or not isinstance(ready, bool):
        raise BadLoad("model must be a string, and ready true or false")
    load = Load(
        model=model,
        ready=ready,
        running=round(_number(found, "running")),
        waiting=round(_number(found, "waiting")),
        limit=round(_number(found, "limit")),
        ttft_target=_number(found, "ttft_target_seconds"),
        prefill_tokens=_number(found, "prefill_tokens"),
        output_tokens=_number(found, "output_tokens"),
        kv_held=_number(found, "kv_held_tokens"),
        kv_total=_number(found, "kv_total_tokens"),
        step_model=_step_model(found.get("step_model")),
    )
    if load.kv_held > load.kv_total:
        raise BadLoad(f"kv_held_tokens {load.kv_held:g} is more than kv_total_tokens {load.kv_total:g}")
    return load


def _step_model(found: Any) -> StepTimeModel | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise BadLoad("step_model must be an object or null")
    base, prefill_token, prefill_context, sequence, kv_token = (
        _number(found, term) for term in contract.STEP_MODEL_TERMS
    )
    return StepTimeModel(base, prefill_token, prefill_context, sequence, kv_token)


def _number(found: dict[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= _MOST:
        raise BadLoad(f"{name} must be a number of 0 or more")
    return float(value)
