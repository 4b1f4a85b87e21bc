"""The parts of `make gpu`. A part that needs what a failed one had to make fails too; all others run."""

import importlib.util
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from bench import bars, correctness, peers, report, speed
from bench.ceilings import Ceilings, measure
from bench.progress import Progress, load

NEEDED = ("transformers", "msgspec", "llguidance")  # by the engine
# The parts that share a process, by its name.
GROUPS: Final = {
    "kernels": ("1 ceilings", "2 compiled cases", "3 kernel benches"),
    "equality": ("4 equality",),
    "aborts": ("5 aborts",),
    "serving": ("6 an 8B model", "7 transformers"),
    "bars": ("bars",),
}
PROGRESS: Final = "progress.json"


@dataclass
class Run:
    """A run on one device. `work` is a folder for models and for the progress, `folder` that of the results."""

    device: str
    folder: Path
    work: Path
    small: bool

    @cached_property
    def progress(self) -> Progress:
        """What the earlier processes have found, and this one adds."""
        return load(self.work / PROGRESS)

    def group(self, name: str) -> list[str]:
        """Run the parts of a group. Returns those that failed. Raises KeyError for an unknown group."""
        for part, call in zip(GROUPS[name], self._calls(name), strict=True):
            begun, failed = time.monotonic(), False
            try:
                call()
                self.progress.done.append(part)
            except Exception:  # noqa: BLE001 - the next parts run all the same
                traceback.print_exc()
                failed = True
            self.progress.save(self.work / PROGRESS)
            print(f"{part}: {'FAILED' if failed else 'done'} in {time.monotonic() - begun:.0f} s", flush=True)
        return self.progress.failed(GROUPS[name])

    def _calls(self, group: str) -> tuple[Callable[[], None], ...]:
        if group == "kernels":
            return (self._ceilings, lambda: correctness.check(self.device, small=self.small), self._benches)
        if group == "bars":
            return (self.judge,)
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return tuple(lambda: _missing(missing) for _ in GROUPS[group])
        from bench.serving.parts import Serving  # needs the engine's packages

        serving = Serving(self.device, self.work, small=self.small)
        if group == "serving":
            return (
                lambda: self._keep(serving.loads(self._measured)),
                lambda: self._keep(serving.transformers()),
            )
        return (serving.equality if group == "equality" else serving.aborts,)

    def judge(self) -> None:
        """The bars. Raises AssertionError for those that were missed."""
        if self.device == "cpu":
            print("bars: skipped, no GPU is visible")
            return
        if missed := bars.misses(self.progress.results):
            raise AssertionError("; ".join(missed))

    @cached_property
    def _measured(self) -> Ceilings:
        return measure(self.device, small=self.small)

    def _ceilings(self) -> None:
        print(f"copy {self._measured.copy / 1e9:.1f} GB/s, matmul {self._measured.matmul / 1e12:.2f} TFLOP/s")

    def _benches(self) -> None:
        self._keep(speed.measure(self.device, self._measured, small=self.small))
        self._keep(peers.measure(self.device, self._measured, small=self.small))

    def _keep(self, results: Iterable[report.Result]) -> None:
        """Print results, and write them with the earlier ones even if a later one fails."""
        kept = self.progress.results
        first = len(kept)
        try:
            for one in results:
                kept.append(one)
                of = f", {one.fraction:.1%} of the floor" if one.fraction else ""
                print(f"{one.what}, {one.shape}: {one.seconds * 1e6:.0f} µs{of}", flush=True)
        finally:
            report.write(kept, first, self._measured, self.folder)


def _missing(names: list[str]) -> None:
    raise RuntimeError(f"not installed: {', '.join(names)}; this part needs the engine's packages")
