"""Beams in the engine: each is a request that stops after every token, and goes on, forks or ends as the search says.

A beam that goes on in several ways forks: its blocks are shared until one of those ways writes. A beam that nothing
goes on from is cancelled at once, and what only it held is free for the next step.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Self

from sluice_engine.beams import Branch, Expansion
from sluice_engine.interrupts import held_back
from sluice_engine.loop import EngineLoop
from sluice_engine.offline import step
from sluice_engine.request import Request, Sampling, TokenLogprob
from sluice_engine.scheduler import branch, extend


class BeamRounds:
    """Rounds of one search over any number of prompts. Use as a context: whatever ends it leaves no beam behind."""

    def __init__(self, engine: EngineLoop, name: str, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens
        self._names = (f"{name}-{number}" for number in itertools.count())
        self._live: list[str] = []  # by branch of the round before

    def __enter__(self) -> Self:
        """No beam yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all beams."""
        with held_back():
            for name in self._live:
                self._engine.scheduler.cancel(name)
            self._live = []
            self._engine.land()

    def expand(self, branches: Sequence[Branch], most: int) -> list[Expansion]:
        """The `most` most likely next tokens of each branch. Raises RuntimeError where a beam fails."""
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
        """The names of these branches, every one of them with its tokens in the engine, and nothing else."""
        scheduler = self._engine.scheduler
        heirs: dict[int, int] = {}  # branch before → the branch that goes on as the same request
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
                branch(scheduler, self._live[beam.origin], name, beam.tokens[-1])
        for origin, number in heirs.items():  # last: a fork knows what its parent knew before
            extend(scheduler, self._live[origin], branches[number].tokens[-1])
        return names

    def _submit(self, name: str, tokens: tuple[int, ...], most: int) -> None:
        request = Request(
            request_id=name,
            known=list(tokens),
            max_tokens=self._max_tokens,
            arrived_at=time.monotonic(),
            sampling=Sampling(logprobs=most),
            steered=True,
        )
        refusal = self._engine.scheduler.submit(request)
        if refusal is not None:
            raise RuntimeError(f"the engine refused a beam: {refusal.message}")
