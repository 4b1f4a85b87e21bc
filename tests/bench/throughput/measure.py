"""The throughput measurements of the benchmark: their sides, load, rounds and bars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.report import processor
from tests.bench.report.row import Report, Row
from tests.bench.throughput import bars, plot, tokens
from tests.bench.throughput.compare import Outcome, interleave
from tests.bench.throughput.host import WorkerFailed, worker
from tests.bench.throughput.llama import ensure
from tests.bench.throughput.load import CONCURRENCY, Load, read
from tests.bench.throughput.sides import SIDES
from tests.bench.throughput.worker import Setup

ROUNDS = 3
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """One load and the sides that run it."""

    load: str  # a file of tests/data
    sides: tuple[str, ...]
    bars: tuple[Mapping[str, float], Mapping[str, float]]  # with bfloat16 instructions, and without
    split: bool  # the static batches are divided among the rounds, because one run of them takes minutes
    check_tokens: bool


LOAD_64 = Comparison(
    "engine_load_64",
    ("ours", "vllm", "vllm-cores", "static", "continuous"),
    bars.LOAD_64,
    split=False,
    check_tokens=True,
)
SPREAD_192 = Comparison("engine_load_spread_192", ("ours", "static"), bars.SPREAD_192, split=True, check_tokens=False)


def measure(
    what: Comparison,
    out: Path,
    say: Callable[[str], None],
    *,
    rounds: int = ROUNDS,
    sides: Sequence[str] = (),
    check: bool = True,
) -> Report:
    """Run, judge and plot the comparison.

    `sides`: only these, in this order; bars against other sides then do not apply.
    """
    chosen = [SIDES[name] for name in sides or what.sides]
    say("the model of 30 M parameters")
    model = ensure()
    where = processor.describe()
    bfloat16 = bool(BFLOAT16_FLAGS & set(where.flags))
    setup = Setup(str(model), "bfloat16" if bfloat16 else "float32", where.cores, CONCURRENCY)
    load = read(what.load)
    outcomes = interleave(chosen, load, setup, rounds, out, say, split=what.split and rounds > 1)
    rows = bars.rows(outcomes, what.bars[0] if bfloat16 else what.bars[1])
    if what.check_tokens and check:
        rows += _agreement(outcomes, load, setup, out, say)
    plots = [plot.draw(outcomes, what.load, setup.dtype, out / f"{what.load}.png")]
    data = {
        "setup": asdict(setup) | {"model": model.name},
        "load": what.load,
        "sides": {o.side.name: o.to_dict() for o in outcomes},
    }
    return Report(rows, data, plots)


def _agreement(
    outcomes: Sequence[Outcome], load: Load, setup: Setup, out: Path, say: Callable[[str], None]
) -> list[Row]:
    """Check the tokens of the first round, and if these are not float32, also those of a float32 run."""
    ours = next((o for o in outcomes if o.side.name == "ours"), None)
    if ours is None or not ours.first:
        return []
    say("comparing our tokens with transformers'")
    model = Path(setup.model)
    rows = [bars.agreement(tokens.compare(model, load.prompts, ours.first, setup.dtype, setup.threads), setup.dtype)]
    if setup.dtype != "float32":
        exact = Setup(setup.model, "float32", setup.threads, setup.concurrency)
        try:
            with worker(ours.side.module, ours.side.python(), exact, out / "bench-ours-float32.log") as running:
                running.ready()
                answer = running.ask(load)
        except WorkerFailed as failure:
            return [*rows, Row("our tokens against transformers, float32", failed=str(failure))]
        found = tokens.compare(model, load.prompts, answer.tokens, "float32", setup.threads)
        rows.append(bars.agreement(found, "float32"))
    return rows
