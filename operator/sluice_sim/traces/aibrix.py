"""AIBrix workloads (Apache-2.0): per timestamp in milliseconds, the requests that its client sends at the same time.

Source: vllm-project/aibrix @ e3e10f9e, benchmarks/generator/workload_generator (save_workload, sample_request.py).
Older files write `Prompt Length` and `Output Length`. Sessions are replayed at their timestamps: a request does not wait
for the response before it. The `events` of agent workloads are no requests.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

from sluice_sim.traces.arrival import BadTrace, Load
from sluice_sim.traces.fields import as_json, field, shown, tokens_field
from sluice_sim.traces.lengths import geometric
from sluice_sim.traces.timestamps import MOST_MILLISECONDS, Timed, timed

PROMPT: Final = ("prompt_length", "Prompt Length")
OUTPUT: Final = ("output_length", "Output Length")


def aibrix(entries: Iterable[tuple[str, Any]], mean: float, seed: int) -> Load:
    """The requests of (place in the file, entry) pairs.

    A request without an output length, which AIBrix sends without a limit, gets one from the geometric distribution
    with this mean. Raises BadTrace."""
    rng, rows, drawn = random.Random(f"{seed}/aibrix"), list[Timed](), 0
    for place, value in entries:
        if not isinstance(value, dict):
            raise BadTrace(f"{place}: expected an object with timestamp and requests, found {shown(as_json(value))}")
        at = field(value, "timestamp", place, "milliseconds ≥ 0", MOST_MILLISECONDS)
        for where, request in _requests(value, place):
            output = _output(request, where)
            drawn += output is None
            rows.append(
                (
                    f"{place}, field timestamp",
                    at,
                    tokens_field(request, _name(request, PROMPT), where),
                    geometric(rng, mean) if output is None else output,
                )
            )
    load = timed(rows)
    if not drawn:
        return load
    note = f"AIBrix: {drawn} of {len(rows)} requests have no output length: drawn with the mean of --output-tokens"
    return Load(load.arrivals, (*load.notes, f"{note}, {mean:g}"))


def _requests(value: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    found = value.get("requests")
    if not isinstance(found, list):
        raise BadTrace(f"{place}, field requests: expected a list of requests, found {shown(as_json(found))}")
    for number, request in enumerate(found, start=1):
        if not isinstance(request, dict):
            raise BadTrace(f"{place}, request {number}: expected an object, found {shown(as_json(request))}")
        yield f"{place}, request {number}", request


def _output(request: dict[str, Any], where: str) -> int | None:
    """The output length; None for null, a missing field or 0, as AIBrix's client reads it. Raises BadTrace."""
    name = _name(request, OUTPUT)
    return (tokens_field(request, name, where, least=0) or None) if request.get(name) is not None else None


def _name(request: dict[str, Any], names: tuple[str, str]) -> str:
    return names[1] if names[1] in request else names[0]
