"""Isolates failures: a batch that raises is split until only the requests that raise alone fail."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from sluice_engine.scheduler import Row

_log = logging.getLogger(__name__)
T = TypeVar("T")


def isolate(
    rows: Sequence[Row],
    forward: Callable[[Sequence[Row]], dict[str, T]],
    errors: dict[str, str],
    faults: type[Exception] = Exception,
) -> dict[str, T]:
    """The results of `forward` by request for the rows that could be computed. `errors` receives one sentence for each
    other.

    If the batch raises one of `faults`, its rows run one by one; other errors are raised. If it runs out of memory, its
    largest request fails and the rest is retried.
    """
    while rows:
        try:
            return forward(rows)
        except faults as error:
            if not out_of_memory(error) or len(rows) == 1:
                _log.exception("a step of %d rows failed; running them one by one", len(rows))
                return _one_by_one(rows, forward, errors, faults)
            largest = max(rows, key=lambda row: (len(row.tokens), row.start))
            _log.error("a step of %d rows ran out of memory; its largest request fails: %s", len(rows), error)
            errors[largest.request_id] = "the step ran out of memory, and this request was its largest"
            rows = [row for row in rows if row is not largest]
    return {}


def check_device(device: torch.device) -> None:
    """Check the device after a step failed for all of its rows. Raises RuntimeError if the accelerator fails every
    operation: after some errors only a new process can use it.
    """
    if device.type == "cpu":
        return
    try:
        torch.ones(1, device=device).item()
    except Exception as error:
        if not out_of_memory(error):
            raise RuntimeError(f"{device} fails every operation; the engine must be restarted: {error}") from error


def out_of_memory(error: Exception) -> bool:
    """True if an allocation failed; torch's CPU allocator reports that only in the message of a RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def _one_by_one(
    rows: Sequence[Row],
    forward: Callable[[Sequence[Row]], dict[str, T]],
    errors: dict[str, str],
    faults: type[Exception],
) -> dict[str, T]:
    found: dict[str, T] = {}
    for row in rows:
        try:
            found |= forward([row])
        except faults as error:
            errors[row.request_id] = f"the model failed on this request: {error}"
    return found
