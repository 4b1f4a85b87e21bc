"""Runs beams in the engine: each beam is a request that pauses after every token, and then continues, forks or is
cancelled.

A beam with several continuations forks: its blocks are shared until one of the forks writes. A beam without
continuation is cancelled immediately, and blocks that only it held are free for the next step.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Self

from sluice_engine.core.engine import EngineLoop
from sluice_engine.offline.beam_search import Branch, Expansion
from sluice_engine.offline.driver import step
from sluice_engine.offline.interrupts import deferred_interrupts
from sluice_engine.request import Request, TokenLogprob
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import branch, extend


class BeamRunner:
    """The rounds of one search over any number of prompts. A context manager that cancels all remaining beams
    on exit.
    """

    def __init__(self, engine: EngineLoop, name: str, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens
        self._names = (f"{name}-{number}" for number in itertools.count())
        self._beams: list[str] = []  # request ids, by beam of the preceding round

    def __enter__(self) -> Self:
        """Starts without beams."""
        return self

    def __exit__(self, *_: object) -> None:
        """Cancels all beams and finishes the running step."""
        with deferred_interrupts():
            for name in self._beams:
                self._engine.scheduler.cancel(name)
            self._beams = []
            self._engine.finish_running_steps()

    def expand(self, branches: Sequence[Branch], most: int) -> list[Expansion]:
        """The `most` most likely next tokens of each beam. Raises RuntimeError if a beam fails."""
        self._beams = self._place(branches, most)
        top_logprobs: dict[str, TokenLogprob] = {}
        while len(top_logprobs) < len(self._beams):
            for delta in step(self._engine, f"{len(self._beams)} beams are not complete").deltas:
                if delta.error is not None and delta.request_id in self._beams:
                    raise RuntimeError(f"a beam failed: {delta.error}")
                if delta.logprobs:
                    top_logprobs[delta.request_id] = delta.logprobs[0]
        return [top_logprobs[name].top for name in self._beams]

    def _place(self, branches: Sequence[Branch], most: int) -> list[str]:
        """Make the engine hold exactly these beams with their tokens; returns their request ids."""
        scheduler = self._engine.scheduler
        successors: dict[int, int] = {}  # preceding beam → the beam that continues as the same request
        for number, beam in enumerate(branches):
            if beam.origin is not None:
                successors.setdefault(beam.origin, number)
        for origin, name in enumerate(self._beams):
            if origin not in successors:
                scheduler.cancel(name)
        names: list[str] = []
        for number, beam in enumerate(branches):
            if beam.origin is not None and successors[beam.origin] == number:
                names.append(self._beams[beam.origin])
                continue
            name = next(self._names)
            names.append(name)
            if beam.origin is None:
                self._submit(name, beam.tokens, most)
            else:
                branch(scheduler.state, self._beams[beam.origin], name, beam.tokens[-1])
        for origin, number in successors.items():  # last, because a fork copies its parent's previous tokens
            extend(scheduler.state, self._beams[origin], branches[number].tokens[-1])
        return names

    def _submit(self, name: str, tokens: tuple[int, ...], most: int) -> None:
        request = Request(
            request_id=name,
            known=list(tokens),
            max_tokens=self._max_tokens,
            arrived_at=time.monotonic(),
            sampling=SamplingParams(temperature=0.0, logprobs=most),
            steered=True,
        )
        rejection = self._engine.scheduler.submit(request)
        if rejection is not None:
            raise RuntimeError(f"the engine rejected a beam: {rejection.message}")
