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
from sluice_engine.offline.interrupts import held_back
from sluice_engine.request import Request, TokenLogprob
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import branch, extend


class BeamRounds:
    """The rounds of one search over any number of prompts. A context manager that cancels all remaining beams
    on exit.
    """

    def __init__(self, engine: EngineLoop, name: str, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens
        self._names = (f"{name}-{number}" for number in itertools.count())
        self._live: list[str] = []  # request ids, by beam of the preceding round

    def __enter__(self) -> Self:
        """Starts without beams."""
        return self

    def __exit__(self, *_: object) -> None:
        """Cancels all beams and finishes the running step."""
        with held_back():
            for name in self._live:
                self._engine.scheduler.cancel(name)
            self._live = []
            self._engine.land()

    def expand(self, branches: Sequence[Branch], most: int) -> list[Expansion]:
        """The `most` most likely next tokens of each beam. Raises RuntimeError if a beam fails."""
        self._live = self._placed(branches, most)
        answers: dict[str, TokenLogprob] = {}
        while len(answers) < len(self._live):
            for delta in step(self._engine, f"{len(self._live)} beams are not complete").deltas:
                if delta.error is not None and delta.request_id in self._live:
                    raise RuntimeError(f"a beam failed: {delta.error}")
                if delta.logprobs:
                    answers[delta.request_id] = delta.logprobs[0]
        return [answers[name].top for name in self._live]

    def _placed(self, branches: Sequence[Branch], most: int) -> list[str]:
        """Make the engine hold exactly these beams with their tokens; returns their request ids."""
        scheduler = self._engine.scheduler
        heirs: dict[int, int] = {}  # preceding beam → the beam that continues as the same request
        for number, beam in enumerate(branches):
            if beam.origin is not None:
                heirs.setdefault(beam.origin, number)
        for origin, name in enumerate(self._live):
            if origin not in heirs:
                scheduler.cancel(name)
        names: list[str] = []
        for number, beam in enumerate(branches):
            if beam.origin is not None and heirs[beam.origin] == number:
                names.append(self._live[beam.origin])
                continue
            name = next(self._names)
            names.append(name)
            if beam.origin is None:
                self._submit(name, beam.tokens, most)
            else:
                branch(scheduler.state, self._live[beam.origin], name, beam.tokens[-1])
        for origin, number in heirs.items():  # last, because a fork copies its parent's previous tokens
            extend(scheduler.state, self._live[origin], branches[number].tokens[-1])
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
        refusal = self._engine.scheduler.submit(request)
        if refusal is not None:
            raise RuntimeError(f"the engine refused a beam: {refusal.message}")
