"""Drives an engine's loop without its server: requests in, texts and step times out."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sluice_engine import messages
from sluice_engine.backend.base import Backend
from sluice_engine.config import engine_options
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams


@dataclass
class Text:
    """What a request got: its tokens, and the logprobs of the two likeliest of each if it asked for them."""

    tokens: list[int] = field(default_factory=list)
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    cached: int = 0  # prompt tokens


def started(folder: Path, backend: Backend, **options: object) -> EngineLoop:
    """An engine that serves."""
    values: dict[str, object] = {"model": str(folder), "served_name": "bench", "speculation": "off", "swap_size": 0}
    return EngineLoop(engine_options(**(values | options)), backend=backend)


def prompts(count: int, lengths: tuple[int, int], vocabulary: int, seed: int) -> list[list[int]]:
    """Random prompts with a length in this range, ends included."""
    dice = random.Random(seed)
    return [[dice.randrange(2, vocabulary) for _ in range(dice.randint(*lengths))] for _ in range(count)]


def submit(engine: EngineLoop, name: str, prompt: list[int], output: int, **sampling: object) -> None:
    """Submit a request, greedy unless told otherwise. Raises RuntimeError if it is rejected."""
    values: dict[str, object] = {"max_tokens": output, "temperature": 0.0, "ignore_eos": True}
    params = SamplingParams(**(values | sampling))  # type: ignore[arg-type]
    rejected = engine.submit(messages.Submit(name, tuple(prompt), params, time.monotonic()))
    if rejected is not None:
        raise RuntimeError(f"request {name} was rejected: {rejected.message}")


def reports(engine: EngineLoop) -> Iterator[messages.StepReport]:
    """Those of all steps until nothing is left."""
    while engine.has_work:
        report = engine.step()
        if report is not None:
            yield report


def texts(engine: EngineLoop) -> dict[str, Text]:
    """Step until nothing is left. Raises RuntimeError for a request that failed."""
    found: dict[str, Text] = {}
    for report in reports(engine):
        for delta in report.deltas:
            if delta.error is not None:
                raise RuntimeError(f"request {delta.request_id} failed: {delta.error}")
            text = found.setdefault(delta.request_id, Text())
            text.tokens += delta.token_ids
            text.top += [each.top for each in delta.logprobs]
            text.cached += delta.cached_tokens
    return found
