"""`python -m tests.fuzz [--seconds 60] [--seed N]`: random input to parsers; exit code 1 with the input that breaks one.

Each input is a change of a valid one, or of an earlier input of the same target. The seed is printed: with it the run is
repeated, input by input.
"""

import argparse
import base64
import random
import secrets
import sys
import time
import traceback
from typing import Final

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, Target

KEPT: Final = 64  # inputs of a target that are changed further
ROUND: Final = 50  # inputs of one target in turn
MOST_SECONDS: Final = 1.0  # for one input; a longer one is a fault


def main() -> int:
    """Returns 0 if every input of every target was taken or refused as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    draw = random.Random(given.seed)
    pools = {target.name: list(target.seeds) for target in TARGETS}
    counts = dict.fromkeys(pools, 0)
    ends = time.monotonic() + given.seconds
    while time.monotonic() < ends:
        for target in TARGETS:
            for _ in range(ROUND):
                data = mutated(draw.choice(pools[target.name]), draw)
                if not _holds(target, data, draw):
                    return 1
                counts[target.name] += 1
            _keep(pools[target.name], data, len(target.seeds), draw)
    sys.stdout.write(", ".join(f"{count} {name}" for name, count in counts.items()) + ": all hold\n")
    return 0


def _keep(pool: list[bytes], data: bytes, seeds: int, draw: random.Random) -> None:
    """An input to change further; the valid ones always stay."""
    if len(data) < 4096:
        pool.append(data)
    if len(pool) > KEPT:
        del pool[draw.randrange(seeds, len(pool))]


def _holds(target: Target, data: bytes, draw: random.Random) -> bool:
    began = time.process_time()
    try:
        target.check(data, draw)
    except Exception:  # noqa: BLE001  whatever it raises is what is looked for
        sys.stdout.write(f"{target.name}: {traceback.format_exc()}input (base64): {base64.b64encode(data).decode()}\n")
        return False
    if (seconds := time.process_time() - began) > MOST_SECONDS:
        sys.stdout.write(f"{target.name}: {seconds:.1f} s for one input: {base64.b64encode(data).decode()}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
