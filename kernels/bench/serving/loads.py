"""An 8B model with random weights under load: decode at fixed batch sizes, a long prefill, and Poisson arrivals."""

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.ceilings import Ceilings
from bench.report import Result
from bench.serving import idle, models
from bench.serving.drive import prompts, reports, started, submit
from transformers import LlamaConfig

from sluice_engine import messages
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.core.engine import EngineLoop


@dataclass(frozen=True)
class Sizes:
    """Of the model and its loads, in tokens and requests."""

    model: LlamaConfig
    batches: tuple[int, ...]
    context: int
    steps: int  # decode steps of each batch size
    long_prompt: int
    arrivals: int
    rate: float  # requests per second
    prompt: tuple[int, int]
    output: int
    kv_size: int | None = None


FULL: Final = Sizes(models.EIGHT_BILLION, (1, 8, 32, 128, 256), 1024, 40, 8192, 200, 10.0, (64, 2048), 128)
SMALL: Final = Sizes(models.SMALL, (1, 4), 48, 6, 200, 6, 100.0, (8, 64), 8, kv_size=8 << 20)


def sizes_of(*, small: bool) -> Sizes:
    """Those of a rehearsal, or of a run on a GPU."""
    return SMALL if small else FULL


MOST_SECONDS: Final = 15.0  # until a batch decodes


class Eager(AssertionError):
    """Decode steps run without their graphs."""


def begin(device: str, folder: Path, sizes: Sizes) -> EngineLoop:
    """An engine with this model. Raises Eager on a GPU whose graphs were not captured."""
    begun = time.monotonic()
    engine = started(
        models.save_config(sizes.model, folder), models.RandomBackend(device),
        max_num_seqs=max(sizes.batches), kv_size=sizes.kv_size,
    )  # fmt: skip
    print(
        f"{engine.scheduler.pool.num_blocks} blocks of KV cache; ready in {time.monotonic() - begun:.1f} s", flush=True
    )
    if isinstance(engine.runner, GraphRunner) and engine.runner.graphs.eager:
        raise Eager(f"steps of {engine.runner.graphs.eager} rows have no graph")
    return engine


def measure(engine: EngineLoop, sizes: Sizes, ceilings: Ceilings) -> Iterator[Result]:
    """One result per load. Its floor is that of `floor_of`."""
    for batch in sizes.batches:
        step = decode_steps(engine, sizes, batch)
        moved, flops, floor = floor_of(sizes.model, batch, batch, step.context, ceilings)
        shape = f"{batch} × {sizes.context}"
        yield Result("decode step", shape, step.seconds, moved, flops, round(floor / step.seconds, 4))
        if step.waited is not None:
            yield Result("idle between decode steps", shape, step.waited * step.seconds, 0, 0, 0.0)
    seconds = prefill(engine, sizes)
    length = sizes.long_prompt
    moved, flops, floor = floor_of(sizes.model, length, 1, length * length // 2, ceilings, reads=length)
    yield Result("prefill", f"{length} tokens", seconds, moved, flops, round(floor / seconds, 4))
    yield from poisson(engine, sizes)


def floor_of(
    config: LlamaConfig, tokens: int, rows: int, pairs: int, ceilings: Ceilings, reads: int | None = None
) -> tuple[int, int, float]:
    """Bytes, flops, and Σ max(bytes / copy, flops / matmul) over products, attention and head. `pairs`: of a query token and
    a token in its context; `reads`: cached tokens that are read, None: as many as pairs.
    """
    width, heads = config.hidden_size, config.num_attention_heads
    dim = getattr(config, "head_dim", None) or width // heads
    layer = width * dim * 2 * (heads + config.num_key_value_heads) + 3 * width * config.intermediate_size
    size = 2  # bytes of bfloat16
    products = (size * layer * config.num_hidden_layers, 2 * layer * config.num_hidden_layers * tokens)
    kv = 2 * size * config.num_key_value_heads * dim * config.num_hidden_layers
    attention = (kv * (pairs if reads is None else reads), 4 * heads * dim * config.num_hidden_layers * pairs)
    head = (size * width * config.vocab_size, 2 * width * config.vocab_size * rows)
    parts = (products, attention, head)
    floor = sum(ceilings.floor(moved, flops) for moved, flops in parts)
    return sum(moved for moved, _ in parts), sum(flops for _, flops in parts), floor


@dataclass(frozen=True)
class DecodeSteps:
    """Decode steps of one batch size: median seconds between their ends, the part of the time in which the device waits
    (None for one without a clock), and the tokens in all contexts on average.
    """

    seconds: float
    waited: float | None
    context: int


def decode_steps(engine: EngineLoop, sizes: Sizes, batch: int) -> DecodeSteps:
    """Measured once all sequences decode, whose contexts then have about `sizes.context` tokens; the requests end with it.
    Raises RuntimeError if they do not decode together soon.
    """
    length = sizes.context - sizes.steps // 2
    names = [f"decode-{batch}-{index}" for index in range(batch)]
    for name, prompt in zip(names, prompts(batch, (length, length), sizes.model.vocab_size, seed=batch), strict=True):
        submit(engine, name, prompt, min(8 * sizes.steps + 4 * batch, engine.model.max_model_length - length))
    ended, gaps, held = None, list[float](), list[int]()
    first = last = 0  # of the spans of these steps
    begun = time.monotonic()
    with idle.timed(engine.runner) as spans:
        for report in reports(engine):
            plain = report.sequences == batch and not report.prefill_tokens
            if plain and ended is not None:
                first, last = first or len(spans), len(spans)
                gaps.append(report.ended_at - ended)
                held.append(report.kv_tokens)
            ended = report.ended_at if plain else None
            if len(gaps) == sizes.steps:
                break
            if time.monotonic() - begun > MOST_SECONDS:
                raise RuntimeError(f"{batch} sequences do not decode together after {MOST_SECONDS:.0f} s: {report}")
    for name in names:
        engine.cancel(messages.Cancel(name, "abort"))
    for _ in reports(engine):
        """Until the steps in flight have ended."""
    steps = spans[first:last]
    return DecodeSteps(statistics.median(gaps), idle.idle_share(steps) if steps else None, round(statistics.mean(held)))


def prefill(engine: EngineLoop, sizes: Sizes) -> float:
    """Seconds from submission to the first token of one long prompt."""
    (prompt,) = prompts(1, (sizes.long_prompt,) * 2, sizes.model.vocab_size, seed=3)
    begun = time.monotonic()
    submit(engine, "long", prompt, 1)
    for _ in reports(engine):
        """Until its only token."""
    return time.monotonic() - begun


def poisson(engine: EngineLoop, sizes: Sizes) -> Iterator[Result]:
    """Median and 99th percentile of the time to the first token, and seconds per output token of the whole load."""
    dice, due = random.Random(5), 0.0
    arrivals: list[tuple[float, str, list[int]]] = []
    for index, prompt in enumerate(prompts(sizes.arrivals, sizes.prompt, sizes.model.vocab_size, seed=5)):
        due += dice.expovariate(sizes.rate)
        arrivals.append((due, f"poisson-{index}", prompt))
    waits, arrived, begun = list[float](), dict[str, float](), time.monotonic()
    while arrivals or engine.has_work:
        now = time.monotonic() - begun
        while arrivals and arrivals[0][0] <= now:
            due, name, prompt = arrivals.pop(0)
            arrived[name] = due
            submit(engine, name, prompt, sizes.output)
        report = engine.step()
        ended = time.monotonic() - begun
        for delta in () if report is None else report.deltas:
            if delta.token_ids and delta.request_id in arrived:
                waits.append(ended - arrived.pop(delta.request_id))
    seconds = time.monotonic() - begun
    shape = f"{sizes.arrivals} requests, {sizes.rate:g} per second"
    waits.sort()
    for what, value in (
        ("time to first token, median", statistics.median(waits)),
        ("time to first token, 99th percentile", waits[int(0.99 * (len(waits) - 1))]),
        ("Poisson arrivals, per output token", seconds / (sizes.arrivals * sizes.output)),
    ):
        yield Result(what, shape, value, 0, 0, 0.0)
