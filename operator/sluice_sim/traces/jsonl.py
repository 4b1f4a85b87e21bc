"""Traces with one JSON object per line: Mooncake's, and those that `sluice bench --record` writes."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sluice_sim.traces.arrival import BLOCK_TOKENS, Arrival, BadTrace
from sluice_sim.traces.fields import MOST_SECONDS, as_json, field, objects, shown, tokens_field

BATCH_SECONDS: Final = 3.0  # Mooncake's timestamps come in batches of three seconds


def jsonl(lines: Iterator[str], seed: int) -> Iterator[Arrival]:
    """Arrivals in order of time. The fields of the first line determine which of the two formats it is.

    Raises BadTrace."""
    found = objects(lines)
    first = next(found, None)
    if first is None:
        return iter(())
    if "hash_ids" in first[1] or "input_length" in first[1]:
        return _mooncake(first, found, seed)
    if "arrival" in first[1]:
        return _recorded(first, found)
    raise BadTrace(
        "line 1: expected the fields of Mooncake (timestamp, input_length, output_length, hash_ids) or of "
        f"sluice bench --record (arrival, input_tokens, output_tokens), found {shown(', '.join(first[1]))}"
    )


def _mooncake(
    first: tuple[int, dict[str, Any]], rest: Iterator[tuple[int, dict[str, Any]]], seed: int
) -> Iterator[Arrival]:
    """Arrivals of a Mooncake trace. Each batch is spread at random over the time until the next, at most 3 s."""
    rng = random.Random(f"{seed}/mooncake")
    batch: list[Arrival] = []
    for line, value in (first, *rest):
        at = field(value, "timestamp", line, "milliseconds ≥ 0", 1000.0 * MOST_SECONDS) / 1000.0
        if batch and at < batch[-1].at:
            raise BadTrace(f"line {line}, field timestamp: expected times in order, {at * 1000:g} is earlier")
        if batch and at > batch[-1].at:
            yield from _spread(batch, min(BATCH_SECONDS, at - batch[-1].at), rng)
            batch = []
        blocks, prompt = _hash_ids(value, line), tokens_field(value, "input_length", line)
        if len(blocks) > -(-prompt // BLOCK_TOKENS):
            raise BadTrace(
                f"line {line}, field hash_ids: expected at most one per {BLOCK_TOKENS} of {prompt} tokens, "
                f"found {len(blocks)}"
            )
        batch.append(Arrival(at, prompt, tokens_field(value, "output_length", line), blocks))
    yield from _spread(batch, BATCH_SECONDS, rng)


def _spread(batch: list[Arrival], seconds: float, rng: random.Random) -> list[Arrival]:
    return sorted((replace(one, at=one.at + seconds * rng.random()) for one in batch), key=lambda one: one.at)


def _hash_ids(value: dict[str, Any], line: int) -> tuple[int, ...]:
    found = value.get("hash_ids", [])
    if not isinstance(found, list) or any(type(one) is not int or not 0 <= one < 1 << 48 for one in found):
        raise BadTrace(
            f"line {line}, field hash_ids: expected a list of whole numbers ≥ 0, found {shown(as_json(found))}"
        )
    return tuple(found)


def _recorded(first: tuple[int, dict[str, Any]], rest: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Arrival]:
    """Arrivals of a recorded benchmark run.

    A rejected request has no lengths. It gets those of the last answered request before it (or else of the first one
    after it), so that the offered load stays the same."""
    lines = [
        (
            field(value, "arrival", line, "seconds ≥ 0", MOST_SECONDS),
            tokens_field(value, "input_tokens", line, least=0),
            tokens_field(value, "output_tokens", line, least=0),
        )
        for line, value in (first, *rest)
    ]
    answered = next(((prompt, output) for _, prompt, output in lines if prompt and output), None)
    if answered is None:
        raise BadTrace("line 1: expected at least one request that was answered (input_tokens and output_tokens ≥ 1)")
    arrivals = []
    for at, prompt, output in lines:
        answered = (prompt, output) if prompt and output else answered
        arrivals.append(Arrival(at, *answered))
    return iter(sorted(arrivals, key=lambda one: one.at))
