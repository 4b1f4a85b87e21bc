"""`python -m tests.bench.throughput`: the throughput comparison alone.

Only Sluice and vLLM, one round: `--sides ours,vllm --rounds 1`. The load with spread lengths: `--load spread`. A side
that is not named has no row and no bar; a named one that fails is a failed row.
"""

import argparse
import sys
from pathlib import Path

from tests.bench.report import show
from tests.bench.throughput.measure import LOAD_64, ROUNDS, SPREAD_192, measure
from tests.bench.throughput.sides import SIDES

OUT = Path(".out")


def main() -> int:
    """Measure, show, write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--load", choices=("64", "spread"), default="64")
    parser.add_argument("--sides", default="", help=f"some of {','.join(SIDES)}; by default all that have a bar")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-tokens", action="store_true", help="do not compare our tokens with transformers'")
    asked = parser.parse_args()
    sides = [name for name in asked.sides.split(",") if name]
    if unknown := set(sides) - set(SIDES):
        parser.error(f"there is no side {', '.join(sorted(unknown))}; choose from {', '.join(SIDES)}")
    what = LOAD_64 if asked.load == "64" else SPREAD_192
    part = show.Part(
        "throughput" if what is LOAD_64 else "spread",
        lambda out, say: measure(what, out, say, rounds=asked.rounds, sides=sides, check=not asked.no_tokens),
    )
    return show.run([part], OUT, OUT / "throughput.json")


if __name__ == "__main__":
    sys.exit(main())
