"""Streams that decode in the engine's own loop, without HTTP, and the bytes that each of their steps must read."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams

PROMPT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Steps:
    """Consecutive decode steps: mean seconds of one, and mean bytes of weights and KV that one reads."""

    seconds: float
    bytes_read: float


class Decoding:
    """`streams` greedy requests of which every step computes one token each. Ends them on exit from `running`."""

    _names = itertools.count()

    def __init__(self, engine: EngineLoop, weight_bytes: int, streams: int, tokens: int) -> None:
        self._engine, self._weight_bytes, self._streams = engine, weight_bytes, streams
        self._tokens = tokens  # of each stream
        self._token_bytes = engine.model.kv_shape.block_bytes(1)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The requests are in the engine and their prompts are computed. Raises RuntimeError if one is rejected."""
        names = [f"step-cost-{next(self._names)}" for _ in range(self._streams)]
        sampling = SamplingParams(max_tokens=self._tokens, temperature=0.0, ignore_eos=True)
        try:
            for index, name in enumerate(names):
                first = 7919 * next(self._names)  # so that no prompt shares a prefix with another
                width = self._engine.model.vocab_size
                prompt = tuple((first + 31 * place) % width for place in range(PROMPT_TOKENS + index % 16))
                if refused := self._engine.submit(messages.Submit(name, prompt, sampling, time.monotonic())):
                    raise RuntimeError(f"the engine rejected a request: {refused.message}")
            while (report := self._engine.step()) is not None and report.sequences < self._streams:
                pass
            self._engine.finish_running_steps()
            yield
        finally:
            self._engine.cancel_all(names)
            self._engine.step()  # reports the cancelled requests

    def run(self, count: int) -> Steps:
        """At least `count` steps, the last of which ends before this returns. Raises RuntimeError if a step is not a
        decode step of all streams."""
        begun = time.perf_counter()
        reports = [self._engine.step() for _ in range(count)]
        reports += self._engine.finish_running_steps()
        seconds = time.perf_counter() - begun
        steps = [report for report in reports if report is not None and report.seconds]
        if len(steps) < count or any(each.sequences != self._streams or each.prefill_tokens for each in steps):
            raise RuntimeError(f"a step did not decode all {self._streams} streams: measure fewer steps")
        kv_bytes = self._token_bytes * sum(each.kv_tokens for each in steps) / len(steps)
        return Steps(seconds / len(steps), self._weight_bytes + kv_bytes)


def weight_bytes(folder: Path, engine: EngineLoop) -> int:
    """Bytes of the weights that a step reads, in the engine's dtype: all tensors of a model whose head is its embedding."""
    from safetensors import safe_open

    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                size = 1
                for side in tensors.get_slice(name).get_shape():
                    size *= side
                count += size
    return count * engine.model.dtype.itemsize
