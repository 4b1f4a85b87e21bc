"""`make aot` compiles the recorded kernels and rewrites table.csv. Needs torch and triton, and no GPU.

Numbers of a known digest are kept, `--all` compiles them too. `--check` compiles nothing and tells whether the table
belongs to the present sources; `--out FILE` writes elsewhere, for another version of Triton. Exit codes: 0, or 1 if the table
is stale or a kernel misses a bar.
"""

import argparse
import sys
import time
from pathlib import Path

import triton
from aot import bars, table


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="aot", description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path, default=table.TABLE)
    options = parser.parse_args(arguments)
    if options.check:
        differences = table.stale(table.read())
        for line in differences:
            print(line)
        print("table.csv is stale: run make aot" if differences else "table.csv is up to date")
        return 1 if differences else 0
    started, rows = time.monotonic(), []
    known = [] if options.all or not options.out.exists() else table.read(options.out)
    kept = {row.digest: row.measured for row in known}
    for one in table.pending():
        measured = kept.get(one.digest)
        row = table.row_of(one, measured)
        if measured is None:
            kept[one.digest] = row.measured
            print(", ".join(one.name), row.measured, flush=True)
        rows.append(row)
    table.write(rows, options.out)
    missed = bars.misses(rows)
    for line in missed:
        print(f"MISSED {line}")
    print(
        f"Triton {triton.__version__}: {len(rows)} kernels in {time.monotonic() - started:.0f} s, {len(missed)} misses"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
