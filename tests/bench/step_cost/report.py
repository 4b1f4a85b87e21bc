"""Time of a decode step of SmolLM2 over the memory bound: the bytes that it reads over the rate at which memory is copied.

Rounds of the memory probe and of a few steps take turns, so that other load on the machine slows both alike; the
medians of the rounds are compared, and the lower quartiles are given beside them. `python -m tests.bench step-cost`.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sluice_engine.backend.resources import processors
from sluice_engine.core.engine import EngineLoop
from sluice_engine.pulled import pull
from tests.bench.report.row import Report, Row, at_most
from tests.bench.step_cost.decoding import Decoding, weight_bytes
from tests.bench.step_cost.engine import decoding_engine
from tests.bench.step_cost.memory_rate import MemoryRate

MOST_RATIO: Final = {1: 1.15, 4: None, 16: 1.3}  # step over the memory bound, by streams; None: recorded only
ROUNDS, SETS = 16, 3  # rounds of one set of requests; sets of each number of streams, in turn
STEPS, PASSES = 12, 1  # of a round
NO_TARGET = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class Round:
    """Neighbouring measurements: seconds of a step, bytes that it reads, rates of memory in bytes per second."""

    seconds: float
    bytes_read: float
    copied: float
    read: float

    @property
    def over_copy(self) -> float:
        """Step time over the bound by the copy rate."""
        return self.seconds * self.copied / self.bytes_read

    @property
    def over_read(self) -> float:
        """Step time over the bound by the read rate."""
        return self.seconds * self.read / self.bytes_read


def report(_out: Path, say: Callable[[str], None]) -> Report:
    """Rows for 1, 4 and 16 streams."""
    say("SmolLM2-135M in the engine's loop")
    folder = pull("smollm2")
    threads = processors()
    engine = decoding_engine(folder, threads, max(MOST_RATIO))
    if "decoder" not in type(engine.model.module.forward).__module__:
        return Report([Row("SmolLM2", failed="the compiled decoder does not run it: see the log")])
    rounds = measure(engine, weight_bytes(folder, engine), threads, say)
    rows = [row for streams, found in rounds.items() for row in _rows(streams, found)]
    every = [each for found in rounds.values() for each in found]
    rows.insert(0, Row(f"memory, {threads} threads", _rates(every)))
    return Report(rows, {str(streams): [asdict(each) for each in found] for streams, found in rounds.items()})


def measure(
    engine: EngineLoop, weights: int, threads: int, say: Callable[[str], None], sets: int = SETS
) -> dict[int, list[Round]]:
    """Rounds by number of streams; the first round of each set warms up and is not counted."""
    memory = MemoryRate(threads)
    found: dict[int, list[Round]] = {streams: [] for streams in MOST_RATIO}
    for turn in range(sets):
        for streams, rounds in found.items():
            say(f"set {turn + 1} of {sets}, streams: {streams}")
            decoding = Decoding(engine, weights, streams, (ROUNDS + 2) * (STEPS + 2))
            with decoding.running():
                decoding.run(STEPS)
                for _ in range(ROUNDS):
                    copied, read = memory.copied(PASSES), memory.read(PASSES)
                    steps = decoding.run(STEPS)
                    after = memory.copied(PASSES)
                    rounds.append(Round(steps.seconds, steps.bytes_read, (copied + after) / 2, read))
    return found


def _rows(streams: int, rounds: Sequence[Round]) -> list[Row]:
    many = f"{streams} streams" if streams > 1 else "one stream"
    seconds, size = _median(rounds, lambda each: each.seconds), _median(rounds, lambda each: each.bytes_read)
    low = _quartile(rounds, lambda each: each.seconds)
    read = f"{_median(rounds, lambda each: each.over_read):.2f} × by the read rate"
    step = Row(
        f"a decode step of {many}",
        f"{1e3 * seconds:.2f} ms (lower quartile {1e3 * low:.2f}) for {size / 1e6:.0f} MB; {read}",
    )
    ratio, name = _median(rounds, lambda each: each.over_copy), f"step / memory bound by the copy rate, {many}"
    quartile = Row(f"the same, lower quartile, {many}", f"{_quartile(rounds, lambda each: each.over_copy):.3g} ×")
    most = MOST_RATIO[streams]
    return [step, Row(name, f"{ratio:.3g} ×") if most is None else at_most(name, ratio, most, " ×"), quartile]


def _rates(rounds: Sequence[Round]) -> str:
    copied, read = (_median(rounds, of) / 1e9 for of in (lambda each: each.copied, lambda each: each.read))
    return f"copies {copied:.1f} GB/s (bytes read + written), reads {read:.1f} GB/s"


def _median(rounds: Sequence[Round], of: Callable[[Round], float]) -> float:
    return statistics.median(map(of, rounds))


def _quartile(rounds: Sequence[Round], of: Callable[[Round], float]) -> float:
    return statistics.quantiles(map(of, rounds), n=4)[0]


if __name__ == "__main__":
    found = report(Path(), lambda said: None)
    sys.stdout.writelines(f"{row.name}: {row.failed or row.value} {row.bar} {row.verdict}\n" for row in found.rows)
    sys.exit(0 if all(row.good for row in found.rows) else 1)
