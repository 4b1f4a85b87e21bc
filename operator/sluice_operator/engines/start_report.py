"""Reads what a starting engine reports on /readyz about the download and the load of its model. Pure; the body is external
input."""

import json
from typing import Any, Final

from sluice import contract
from sluice_operator.autoscaler.values import EngineSample, StartReport

MAX_TEXT: Final = 1000  # characters that are kept
_REASONS: Final = frozenset({*contract.CONFIG_REASONS, *contract.FETCH_REASONS})


def is_starting(sample: EngineSample) -> bool:
    """True if the engine downloads or loads its model, or tries to: it has spent time on it and none on what follows."""
    spent = dict(sample.load_seconds)
    begun = spent.get("fetch", 0.0) > 0.0 or spent.get("load", 0.0) > 0.0
    return begun and not spent.get("warm") and not sample.kv_blocks


def read(body: bytes) -> StartReport | None:
    """Return the report of an answer of /readyz; None if it has none."""
    try:
        answer = json.loads(body)
        load, problem = answer.get("load") or {}, answer.get("problem") or {}
        progress, reason, message = load.get("text", ""), problem.get("reason", ""), problem.get("message", "")
    except (ValueError, AttributeError, RecursionError):
        return None
    fault = reason if reason in _REASONS else ""
    if load.get("phase") == "load":
        return StartReport("", fault, _printable(message), loaded=_printable(progress))
    return StartReport(_printable(progress), fault, _printable(message))


def _printable(text: Any) -> str:
    line = " ".join(str(text).split())[:MAX_TEXT]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
