"""Interleaved rounds: the sides run the same load in turn, so that a slow minute of the machine affects all of them."""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.throughput.host import Answer, Worker, WorkerFailed, worker
from tests.bench.throughput.load import Load
from tests.bench.throughput.peer_venv import PeerUnavailable
from tests.bench.throughput.sides import Side
from tests.bench.throughput.worker import Setup

WARM_UP_TOKENS = 32


@dataclass(slots=True)
class Outcome:
    """One side over all rounds."""

    side: Side
    about: dict[str, str] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)  # of each round
    seconds: list[float] = field(default_factory=list)
    first: Sequence[Sequence[int]] = ()  # the output tokens of its first round, by request
    split: bool = False  # its rounds are parts of one run
    failed: str | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Median over the rounds, or the overall rate if they are parts of one run. None if it failed."""
        if self.failed or not self.seconds:
            return None
        return sum(self.tokens) / sum(self.seconds) if self.split else statistics.median(self.rates)

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each round."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]

    def to_dict(self) -> dict[str, object]:
        """Data for the JSON, without the tokens."""
        return {
            "title": self.side.title,
            "about": self.about,
            "tokens_per_second": self.tokens_per_second,
            "rates": self.rates,
            "seconds": self.seconds,
            "split": self.split,
            "failed": self.failed,
        }


def interleave(
    sides: Sequence[Side], load: Load, setup: Setup, rounds: int, logs: Path, say: Callable[[str], None], *, split: bool
) -> list[Outcome]:
    """Run every side once per round, with the processes of the other sides stopped.

    Each round shifts the prompts' token ids, so that no prefix cache hits. With `split` a side that works in batches
    runs a part of its batches in each round, and all rounds together are one run. A side that fails is skipped from
    then on.
    """
    outcomes = [Outcome(side, split=split and side.batch > 0) for side in sides]
    with contextlib.ExitStack() as stack:
        workers = {o.side.name: w for o in outcomes if (w := _start(stack, o, load, setup, logs, say)) is not None}
        for number in range(rounds):
            for outcome in outcomes:
                if outcome.failed is None:
                    say(f"round {number + 1} of {rounds}: {outcome.side.title}")
                    _round(outcome, workers[outcome.side.name], load, number, rounds)
    return outcomes


def _start(
    stack: contextlib.ExitStack, outcome: Outcome, load: Load, setup: Setup, logs: Path, say: Callable[[str], None]
) -> Worker | None:
    side = outcome.side
    say(f"starting and warming {side.title}")
    try:
        python = side.python()
        log = logs / f"bench-{side.name}.log"
        running = stack.enter_context(worker(side.module, python, setup, log, side.environment(python)))
        outcome.about = running.ready()
        running.ask(load.warm_up(setup.concurrency, WARM_UP_TOKENS))
    except (WorkerFailed, PeerUnavailable) as failure:
        outcome.failed = str(failure)
        return None
    return running


def _round(outcome: Outcome, running: Worker, load: Load, number: int, rounds: int) -> None:
    part = load.part(number, rounds, outcome.side.batch) if outcome.split else load.turned(number)
    try:
        answer: Answer = running.ask(part)
    except WorkerFailed as failure:
        outcome.failed = str(failure)
        return
    outcome.tokens.append(part.tokens)
    outcome.seconds.append(answer.seconds)
    outcome.first = outcome.first or answer.tokens
