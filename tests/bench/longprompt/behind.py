"""Short prompts that arrive behind long ones, on the real engine: the times of all first tokens.

It runs in a process of its own: `python -m tests.bench.longprompt.behind MODEL THREADS CASES`, one JSON line per
case.
"""

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from sluice_engine.config import engine_options
from sluice_engine.core.engine import EngineLoop
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.traces import Arrival
from tests.bench.fidelity.timeline import Timeline, serve_all

TTFT, ITL = 2.0, 0.1  # s: the engine's targets
PLACES = 56
LONG, SHORT, SHORTS = 6500, 7, 8  # tokens of a long and of a short prompt, and the number of short ones
INTERVAL = 0.5  # s between the long prompts' arrival and the first short one, and between short ones
STREAM, STREAM_OUTPUT = 100, 300  # tokens: outputs last for about as long as a long prompt takes
AFTER = 1.0  # s: the streams' prompts are computed by then, and the long ones arrive
VOCABULARY = 49_152
# The step-time model is fitted to these: prompts of several lengths, alone and beside decoding requests.
LEARNING = (Arrival(0.0, 7, 70), Arrival(0.0, 300, 40), Arrival(0.5, 1500, 40), Arrival(1.0, 4000, 20))


@dataclass(frozen=True, slots=True)
class Case:
    """One load."""

    policy: str
    longs: int
    streams: int = 0
    shorts: int = SHORTS

    @property
    def arrivals(self) -> list[Arrival]:
        """The streams, the long prompts, the short ones."""
        streams = [Arrival(0.0, STREAM, STREAM_OUTPUT) for _ in range(self.streams)]
        longs = [Arrival(AFTER, LONG, 1) for _ in range(self.longs)]
        return [
            *streams,
            *longs,
            *(Arrival(AFTER + INTERVAL * (1 + number), SHORT, 8) for number in range(self.shorts)),
        ]


POLICIES = ("fcfs", "edf", "srpf")
KINDS = ((1, 0), (4, 0), (1, 4))  # long prompts and streams
# What a long prompt takes without short ones does not depend on the policy.
CASES = (
    *(Case("fcfs", longs, streams, 0) for longs, streams in KINDS),
    *(Case(policy, longs, streams) for policy in POLICIES for longs, streams in KINDS),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one case. Seconds."""

    case: Case
    long: tuple[float, ...]  # TTFT of each long prompt
    short: tuple[float, ...]  # of each short one
    gaps: tuple[float, ...]  # inter-token times of the streams until the last long prompt's first token

    @classmethod
    def read(cls, line: dict[str, Any]) -> "Found":
        """From the JSON of a line."""
        return cls(Case(**line["case"]), *(tuple(line[name]) for name in ("long", "short", "gaps")))


def found(case: Case, timeline: Timeline) -> Found:
    """The result of a case that was served."""
    records = timeline.records
    longs = records[case.streams : case.streams + case.longs]
    firsts = [one.first_at for one in longs if one.first_at is not None]
    begun = timeline.begun
    ends = [step.ended_at - begun for step in timeline.steps if AFTER < step.ended_at - begun <= max(firsts)]
    gaps = [later - sooner for sooner, later in pairwise(ends)] if case.streams else []
    return Found(case, _ttfts(longs), _ttfts(records[case.streams + case.longs :]), tuple(gaps))


def _ttfts(records: Sequence[RequestRecord]) -> tuple[float, ...]:
    return tuple(one.ttft for one in records if one.ttft is not None)


def engine(model: str, policy: str, threads: int) -> EngineLoop:
    """An engine of this policy whose step-time model is fitted."""
    loop = EngineLoop(
        engine_options(
            model=model, served_name="bench", threads=threads, policy=policy, speculation="off", max_num_seqs=PLACES,
            concurrency_min=PLACES, concurrency_max=PLACES, kv_size=1 << 30, itl_target=ITL, ttft_target=TTFT,
        )
    )  # fmt: skip
    serve(loop, LEARNING, random.Random(policy))
    return loop


def serve(loop: EngineLoop, arrivals: Sequence[Arrival], draw: random.Random) -> Timeline:
    """Serve the arrivals in real time. No two prompts share a prefix."""
    prompts = [tuple(draw.randrange(3, VOCABULARY) for _ in range(one.prompt)) for one in arrivals]
    timeline = Timeline(arrivals, prompts, time.monotonic, time.sleep, begun=time.monotonic())
    serve_all(loop, timeline)
    return timeline


def main() -> None:
    """Arguments: the model's folder, the number of threads, the cases as a JSON list."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, threads, draw = sys.argv[1], int(sys.argv[2]), random.Random(0)
    cases = [Case(**each) for each in json.loads(sys.argv[3])]
    for policy in dict.fromkeys(each.policy for each in cases):
        loop = engine(model, policy, threads)
        for case in (each for each in cases if each.policy == policy):
            print(json.dumps(asdict(found(case, serve(loop, case.arrivals, draw)))), file=answers)


if __name__ == "__main__":
    main()
