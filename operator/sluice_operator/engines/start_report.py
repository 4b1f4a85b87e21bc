"""Reads what a starting engine reports on /readyz about the download of its model. Pure; the body is external input."""

import json
from typing import Any, Final

from sluice import contract
from sluice_operator.autoscaler.values import EngineSample, StartReport

MAX_TEXT: Final = 1000  # characters that are kept
_REASONS: Final = frozenset(
    {
        *contract.FETCH_REASONS,
        contract.REASON_MODEL_NOT_FOUND,
        contract.REASON_MODEL_INVALID,
        contract.REASON_UNSUPPORTED_ARCHITECTURE,
        contract.REASON_INSUFFICIENT_MEMORY,
        contract.REASON_INVALID_OPTION,
    }
)


def is_fetching(sample: EngineSample) -> bool:
    """True if the engine downloads its model, or tries to: it has spent time on it and none on the load."""
    spent = dict(sample.load_seconds)
    return spent.get("fetch", 0.0) > 0.0 and not spent.get("load") and not sample.kv_blocks


def read(body: bytes) -> StartReport | None:
    """Return the report of an answer of /readyz; None if it has none."""
    try:
        answer = json.loads(body)
        load, problem = answer.get("load") or {}, answer.get("problem") or {}
        progress, reason, message = load.get("text", ""), problem.get("reason", ""), problem.get("message", "")
    except (ValueError, AttributeError, RecursionError):
        return None
    return StartReport(_printable(progress), reason if reason in _REASONS else "", _printable(message))


def _printable(text: Any) -> str:
    line = " ".join(str(text).split())[:MAX_TEXT]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
