"""All correctness cases of all kernels, compiled or interpreted."""

from collections.abc import Callable
from typing import Any, Final

from bench.cases import block_copy, kv_write, moe, paged_decode, paged_prefill, rms_norm, sample, silu_mul, w4a16, w8a16
from bench.cases.memory import Mismatch

# Cases that run by themselves, cases that need a GPU, and the comparison.
KERNELS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Any, str], float]]]] = {
    module.__name__.rsplit(".", 1)[1]: (dict(module.NAMED), dict(module.LARGE), module.compare)
    for module in (rms_norm, silu_mul, kv_write, paged_decode, paged_prefill, block_copy, sample, w4a16, w8a16, moe)
}
SMALL_STEP: Final = 5  # a rehearsal runs every fifth case; the tests run them all


def check(device: str, *, small: bool) -> None:
    """Prints a line per kernel and one per failed case. Raises Mismatch if a case failed."""
    wrong = 0
    for kernel, (named, large, compare) in KERNELS.items():
        cases = list(named.items())[::SMALL_STEP] if small else list((named | large).items())
        failures = [line for name, case in cases if (line := _failure(f"{kernel}, {name}", case, compare, device))]
        for line in failures:
            print(line)
        wrong += len(failures)
        print(f"{kernel}: {len(cases) - len(failures)} cases right, {len(failures)} wrong", flush=True)
    if wrong:
        raise Mismatch(f"{wrong} cases differ from their references")


def _failure(name: str, case: Any, compare: Callable[[Any, str], float], device: str) -> str | None:
    try:
        compare(case, device)
    except Exception as error:  # noqa: BLE001 - a kernel that does not compile is one failed case
        return f"FAILED {name}: {error!r}"
    return None
