"""Traces in JSON, most with one object per line: Mooncake's, and those that `sluice bench --record` writes."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from sluice_sim.traces import timestamps
from sluice_sim.traces.aibrix import aibrix
from sluice_sim.traces.arrival import BLOCK_TOKENS, Arrival, BadTrace, Load
from sluice_sim.traces.fields import MOST_SECONDS, as_json, documents, field, objects, shown, tokens_field
from sluice_sim.traces.prometheus.load import prometheus

BATCH_SECONDS: Final = 3.0  # Mooncake's timestamps come in batches of three seconds


def json_documents(text: str, mean: float, seed: int) -> Load:
    """A file of whole JSON documents: Prometheus' answers, or AIBrix's list of timestamps. Raises BadTrace."""
    found = documents(text)
    entries = found[0] if found and isinstance(found[0], list) else None
    if entries is None or any(isinstance(one, dict) and "metric" in one for one in entries[:1]):
        return prometheus(found, seed)
    return aibrix(((f"entry {number}", one) for number, one in enumerate(entries, start=1)), mean, seed)


def jsonl(lines: Iterator[str], mean: float, seed: int) -> Load:
    """Arrivals in order of time. The fields of the first line determine the format.

    `mean`: output tokens of an AIBrix request without an output length. Raises BadTrace."""
    found = objects(lines)
    first = next(found, None)
    if first is None:
        return Load(())
    rest, fields = chain((first,), found), first[1]
    if "hash_ids" in fields or "input_length" in fields:
        return Load(_mooncake(rest, seed))
    if "arrival" in fields:
        return Load(_recorded(rest))
    if "requests" in fields:
        return aibrix(((f"line {line}", value) for line, value in rest), mean, seed)
    if timestamps.COLUMNS[0] in fields:
        return timestamps.json_lines(rest)
    raise BadTrace(
        "line 1: expected the fields of Mooncake (timestamp, input_length, output_length, hash_ids), of AIBrix "
        f"(timestamp, requests), of {', '.join(timestamps.COLUMNS)}, or of sluice bench --record (arrival, "
        f"input_tokens, output_tokens), found {shown(', '.join(fields))}"
    )


def _mooncake(found: Iterable[tuple[int, dict[str, Any]]], seed: int) -> Iterator[Arrival]:
    """Arrivals of a Mooncake trace. Each batch is spread at random over the time until the next, at most 3 s."""
    rng = random.Random(f"{seed}/mooncake")
    batch: list[Arrival] = []
    for line, value in found:
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


def _recorded(found: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[Arrival]:
    """Arrivals of a recorded benchmark run.

    A rejected request has no lengths. It gets those of the last answered request before it (or else of the first one
    after it), so that the offered load stays the same."""
    lines = [
        (
            field(value, "arrival", line, "seconds ≥ 0", MOST_SECONDS),
            tokens_field(value, "input_tokens", line, least=0),
            tokens_field(value, "output_tokens", line, least=0),
        )
        for line, value in found
    ]
    answered = next(((prompt, output) for _, prompt, output in lines if prompt and output), None)
    if answered is None:
        raise BadTrace("line 1: expected at least one request that was answered (input_tokens and output_tokens ≥ 1)")
    arrivals = []
    for at, prompt, output in lines:
        answered = (prompt, output) if prompt and output else answered
        arrivals.append(Arrival(at, *answered))
    return iter(sorted(arrivals, key=lambda one: one.at))
