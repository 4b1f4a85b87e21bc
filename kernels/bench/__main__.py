"""`make gpu` checks every compiled kernel against its reference, then measures its speed. Needs only torch and triton.

Exit codes: 0 all checks passed, 1 a kernel differs from its reference, 2 no CUDA device is visible.
"""

import sys
import time

import torch


def main() -> int:
    """Runs the checks, then the measurements. A failed check skips the measurements. Returns the exit code."""
    if not torch.cuda.is_available():
        print("make gpu needs a CUDA device and torch sees none here: run it on a machine with a GPU.", file=sys.stderr)
        return 2
    from . import checks, paged_decode

    started = time.monotonic()
    failures = 0
    for name, case in (checks.NAMED | checks.LARGE).items():
        try:
            error = checks.compare(case, "cuda")
        except checks.Mismatch as mismatch:
            failures += 1
            print(f"FAILED {name}: {mismatch}")
        else:
            print(f"ok     {name}: relative error {error:.2g}")
    print(f"{len(checks.NAMED) + len(checks.LARGE) - failures} cases right, {failures} wrong")
    if failures:
        return 1
    paged_decode.measure(print)
    print(f"{time.monotonic() - started:.0f} s in all; lines added to {paged_decode.RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
