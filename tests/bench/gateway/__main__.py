"""`make bench-gateway`: measures the gateway on this machine; a table and .out/bench-gateway.json.

The exit code is 0 only if every bar is met. Parts can be named: `python -m tests.bench.gateway overhead footprint`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.gateway import caches, footprint, kills, overhead, simulated, views
from tests.bench.report import show
from tests.bench.report.show import Part

OUT = Path(".out")
PARTS: Sequence[Part] = (
    Part("overhead", overhead.report),
    Part("footprint", footprint.report),
    Part("caches", caches.report),
    Part("views", views.report),
    Part("simulated", simulated.report),
    Part("kills", kills.report),
)


def main() -> int:
    """Measure the given parts, all by default; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gateway", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(part.name for part in PARTS)}; all by default")
    asked: list[str] = parser.parse_args().parts
    if unknown := set(asked) - {part.name for part in PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    return show.run([part for part in PARTS if not asked or part.name in asked], OUT, OUT / "bench-gateway.json")


if __name__ == "__main__":
    sys.exit(main())
