"""`make bench`: measures the engine's acceptance criteria on this machine; a table, .out/bench.json, plots in .out/.

The exit code is 0 only if every bar is met; a side that is missing or fails is a failed row, never left out. Parts can
be named: `python -m tests.bench throughput waste`. `--stored` shows the committed results, marked if other code
measured them.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.bench.http_process.measure import PARTS as HTTP_PROCESS
from tests.bench.longprompt.behind_report import report as behind
from tests.bench.longprompt.report import report as longprompt
from tests.bench.report import measured_code, show
from tests.bench.report.show import Part
from tests.bench.scheduling import deciding, goodput, hit_ratio, host_time, kv_waste, pools, speculation
from tests.bench.serving import batching
from tests.bench.serving.report import report as serving
from tests.bench.step_cost.int8 import report as int8
from tests.bench.step_cost.report import report as step_cost
from tests.bench.throughput.measure import LOAD_64, SPREAD_192
from tests.bench.throughput.measure import measure as throughput

OUT = Path(".out")
STORED = Path(__file__).parent / "results" / "bench.json"
PARTS: Sequence[Part] = (
    Part("throughput", lambda out, say: throughput(LOAD_64, out, say)),
    Part("spread", lambda out, say: throughput(SPREAD_192, out, say)),
    Part("serving", serving),
    Part("batching", batching.report),
    Part("longprompt", longprompt),
    Part("behind", behind),
    Part("speculation", speculation.report),
    Part("goodput", goodput.report),
    Part("admission", pools.report),
    Part("waste", kv_waste.report),
    Part("hits", hit_ratio.report),
    Part("host", host_time.report),
    Part("decide", deciding.report),
    Part("step-cost", step_cost),
    Part("int8", int8),
    *HTTP_PROCESS,
)


def main() -> int:
    """Measure the given parts, all by default; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(part.name for part in PARTS)}; all by default")
    parser.add_argument("--stored", type=Path, nargs="?", const=STORED, help="show this JSON instead of measuring")
    given = parser.parse_args()
    if given.stored:
        Console(width=show.FILE_WIDTH).print(show.stored(given.stored, measured_code.describe()))
        return 0
    asked: list[str] = given.parts
    if unknown := set(asked) - {part.name for part in PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    return show.run([part for part in PARTS if not asked or part.name in asked], OUT, OUT / "bench.json")


if __name__ == "__main__":
    sys.exit(main())
