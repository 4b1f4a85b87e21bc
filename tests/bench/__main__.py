"""`make bench`: measures what the engine must reach on this machine; a table, .out/bench.json, plots in .out/.

Exit code 0 only if every bar is met; a side that is missing or failed is a failed row, never left out. Parts can be
named: `python -m tests.bench throughput waste`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench import batching, deciding, goodput, hit_ratio, host_time, kv_waste, pools, show, speculation
from tests.bench.longprompt.report import report as longprompt
from tests.bench.show import Part
from tests.bench.throughput.measure import LOAD_64, SPREAD_192
from tests.bench.throughput.measure import measure as throughput

OUT = Path(".out")
PARTS: Sequence[Part] = (
    Part("throughput", lambda out, say: throughput(LOAD_64, out, say)),
    Part("spread", lambda out, say: throughput(SPREAD_192, out, say)),
    Part("batching", batching.report),
    Part("longprompt", longprompt),
    Part("speculation", speculation.report),
    Part("goodput", goodput.report),
    Part("admission", pools.report),
    Part("waste", kv_waste.report),
    Part("hits", hit_ratio.report),
    Part("host", host_time.report),
    Part("decide", deciding.report),
)


def main() -> int:
    """Measure what was asked for, all by default; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(part.name for part in PARTS)}; all by default")
    asked: list[str] = parser.parse_args().parts
    if unknown := set(asked) - {part.name for part in PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    return show.run([part for part in PARTS if not asked or part.name in asked], OUT, OUT / "bench.json")


if __name__ == "__main__":
    sys.exit(main())
