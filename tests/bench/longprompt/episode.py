"""One long prompt that arrives among decoding streams, on the real engine: the times of all steps to its first token.

It runs in a process of its own: `python -m tests.bench.longprompt.episode`, one JSON line per episode.
"""

import itertools
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams
from sluice_perfmodel.step_time import StepTimeModel
from tests.bench.longprompt.least import least_seconds
from tests.bench.throughput.load import VOCABULARY

STREAMS = 8
# Tokens. The streams' context must be nearly constant over the hundreds of steps of the long prompt: with 16 streams
# that begin at 128 tokens, decode time alone doubles in that time; that is T, so no chunk size could stay within it.
STREAM_PROMPT = 4096
LONG_PROMPT = 8192
DECODE_ONLY_STEPS = 60  # before the long prompt arrives
TARGET_OVER_P50 = 2.0
LARGEST_CHUNK = 2048
ENDLESS = 8000  # tokens of a stream: more than any episode has steps
NO_TARGET = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class Step:
    """One step as observed by its streams."""

    at: float  # end of the step, seconds since the arrival of the long prompt; negative before
    gap: float  # seconds since the end of the previous step: every stream's inter-token time
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class Episode:
    """The result of one long prompt. Seconds."""

    chunk: int | None  # fixed chunk size; None: latency-driven
    decode_p50: float
    target: float
    ttft: float
    least_ttft: float | None  # by the step model fitted at the end, at the target; None if no time is left for a prompt
    model: tuple[float, float, float, float, float]
    steps: tuple[Step, ...]


def episode(engine: EngineLoop, chunk: int | None, names: Iterator[int], dice: random.Random) -> Episode:
    """Start the streams, measure them alone, submit the prompt, step until its first token, and cancel all of them."""
    engine.patch(_limits(NO_TARGET, LARGEST_CHUNK))
    streams = [_submit(engine, names, dice, STREAM_PROMPT) for _ in range(STREAMS)]
    report = _step(engine)
    while report.sequences < STREAMS:
        report = _step(engine)
    steps, last = list[tuple[float, float, messages.StepReport]](), report.ended_at
    for _ in range(DECODE_ONLY_STEPS):
        report = _step(engine)
        steps.append((report.ended_at, report.ended_at - last, report))
        last = report.ended_at
    alone = median(gap for _, gap, _ in steps)
    target = TARGET_OVER_P50 * alone
    engine.patch(_limits(target if chunk is None else NO_TARGET, chunk or LARGEST_CHUNK))
    arrived, kv_tokens = time.monotonic(), report.kv_tokens
    long = _submit(engine, names, dice, LONG_PROMPT)
    while not any(delta.request_id == long and delta.token_ids for delta in report.deltas):
        report = _step(engine)
        steps.append((report.ended_at, report.ended_at - last, report))
        last = report.ended_at
    base, prefill_token, prefill_context, sequence, kv_token = report.model
    model = StepTimeModel(base, prefill_token, prefill_context, sequence, kv_token)
    least = least_seconds(model, LONG_PROMPT, target, STREAMS, kv_tokens)
    for name in (*streams, long):
        engine.cancel(messages.Cancel(name, "abort"))
    engine.step()
    return Episode(
        chunk=chunk,
        decode_p50=alone,
        target=target,
        ttft=last - arrived,
        least_ttft=least if math.isfinite(least) else None,
        model=report.model,
        steps=tuple(Step(ended - arrived, gap, said.prefill_tokens) for ended, gap, said in steps),
    )


def _limits(itl_target: float, chunk: int) -> messages.LimitsPatch:
    return messages.LimitsPatch(changes={"itl_target": itl_target, "max_batched_tokens": chunk + STREAMS})


def _submit(engine: EngineLoop, names: Iterator[int], dice: random.Random, tokens: int) -> str:
    name = f"episode-{next(names)}"
    prompt = tuple(dice.randrange(VOCABULARY) for _ in range(tokens))
    params = SamplingParams(max_tokens=min(ENDLESS, 16384 - tokens), temperature=0.0, ignore_eos=True)
    refusal = engine.submit(messages.Submit(name, prompt, params, time.monotonic()))
    if refusal is not None:
        raise RuntimeError(f"the engine refused a request: {refusal.message}")
    return name


def _step(engine: EngineLoop) -> messages.StepReport:
    report = engine.step()
    if report is None:
        raise RuntimeError("the engine has nothing to do while streams decode")
    return report


def main() -> None:
    """Arguments: the model's folder, the number of threads, chunks to try in order as JSON (null: latency-driven)."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, threads, chunks = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    options = engine_options(
        model=model,
        served_name="bench",
        threads=threads,
        max_num_seqs=STREAMS + 1,
        concurrency_min=STREAMS + 1,
        concurrency_max=STREAMS + 1,
        max_batched_tokens=LARGEST_CHUNK + STREAMS,
        kv_size=1 << 30,
        itl_target=NO_TARGET,
        ttft_target=NO_TARGET,
        speculation="off",
    )
    engine, names, dice = EngineLoop(options), itertools.count(), random.Random(0)
    for chunk in chunks:
        print(json.dumps(asdict(episode(engine, chunk, names, dice))), file=answers)


if __name__ == "__main__":
    main()
