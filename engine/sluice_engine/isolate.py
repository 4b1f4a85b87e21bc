"""One request's failure stays its own: a batch that raises is taken apart until only what raises by itself fails."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from sluice_engine.scheduler import Row

_log = logging.getLogger(__name__)
T = TypeVar("T")


def isolate(
    rows: Sequence[Row], forward: Callable[[Sequence[Row]], dict[str, T]], errors: dict[str, str]
) -> dict[str, T]:
    """What `forward` gives for the rows that could be computed, by request; of the others a sentence each in `errors`.

    If the batch raises, its rows are run one by one; if it runs out of memory, its largest request fails and the rest
    is tried again.
    """
    while rows:
        try:
            return forward(rows)
        except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
            if not out_of_memory(error) or len(rows) == 1:
                _log.exception("a step of %d rows failed; running them one by one", len(rows))
                return _one_by_one(rows, forward, errors)
            largest = max(rows, key=lambda row: (len(row.tokens), row.start))
            _log.error("a step of %d rows ran out of memory; its largest request fails: %s", len(rows), error)
            errors[largest.request_id] = "the step ran out of memory, and this request was its largest"
            rows = [row for row in rows if row is not largest]
    return {}


def check_device(device: torch.device) -> None:
    """To be asked where a step failed for all of its rows. Raises RuntimeError where the accelerator computes nothing
    any more, whoever asks: after some errors only a new process can use it."""
    if device.type == "cpu":
        return
    try:
        torch.ones(1, device=device).item()
    except Exception as error:
        if not out_of_memory(error):
            raise RuntimeError(f"{device} computes nothing any more; the engine must start anew: {error}") from error


def out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed; torch's allocator for the processor says so in words only."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def _one_by_one(
    rows: Sequence[Row], forward: Callable[[Sequence[Row]], dict[str, T]], errors: dict[str, str]
) -> dict[str, T]:
    found: dict[str, T] = {}
    for row in rows:
        try:
            found |= forward([row])
        except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
            errors[row.request_id] = f"the model failed on this request: {error}"
    return found
