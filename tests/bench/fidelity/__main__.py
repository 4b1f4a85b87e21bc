"""`make fidelity`: compares the simulator with the engine on this machine. Prints a table, writes .out/fidelity.json.

The "told" simulator gets the machine's slowness in each second of a run: it helps to find causes and does not count.
The exit code is 0 only if every percentile is within its bar. It takes about twenty minutes and needs a quiet machine.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.fidelity.measure import REQUESTS, measure
from tests.bench.report import measured_code, processor
from tests.bench.throughput import llama

OUT = Path(".out")
HEADINGS = (
    "load",
    "time",
    "engine, ms",
    "simulator, ms",
    "apart",
    "engine's own spread",
    "allowed",
    "told, apart",
    "met",
)
DERIVED = "predicted", "apart", "spread", "bar", "told_apart", "met"


def main(arguments: list[str]) -> int:
    """Measure, show, write; returns the exit code. One optional argument: the number of requests instead of 1,000."""
    requests = int(arguments[0]) if arguments else REQUESTS
    progress = Console(stderr=True)
    found, profiles = measure(
        llama.ensure(), lambda text: progress.print(text, markup=False, highlight=False), requests
    )
    where, measured_by = processor.describe(), measured_code.describe()
    table = Table(
        title=f"{where.name}, {measured_by.short}: engine and simulator (three runs), {requests} requests each"
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(
            f"{one.utilisation:g}",
            f"{one.what} p{one.percentile}",
            " ".join(f"{1e3 * seconds:.1f}" for seconds in one.engine),
            " ".join(f"{1e3 * seconds:.1f}" for seconds in one.simulated),
            f"{100 * one.apart:.1f} %",
            f"{100 * one.spread:.1f} %",
            f"{100 * one.bar:.0f} %",
            f"{100 * one.told_apart:.1f} %",
            "[green]yes" if one.met else "[red]no",
        )
    Console().print(table)
    OUT.mkdir(exist_ok=True)
    rows = [{**asdict(one), **{name: getattr(one, name) for name in DERIVED}} for one in found]
    by_load = {f"{load:g}": [asdict(one) for one in each] for load, each in profiles.items()}
    document = {
        "processor": asdict(where),
        "code": asdict(measured_by),
        "profiles": by_load,
        "requests": requests,
        "rows": rows,
    }
    (OUT / "fidelity.json").write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(one.met for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
