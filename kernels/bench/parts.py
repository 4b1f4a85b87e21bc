"""The parts of `make gpu`. A part that needs what a failed one had to make fails too; all others run."""

import importlib.util
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import bars, correctness, peers, report, speed
from bench.ceilings import Ceilings, measure
from bench.progress import Progress, load

if TYPE_CHECKING:
    from bench.serving.parts import Serving  # needs the engine's packages

NEEDED = ("transformers", "msgspec", "llguidance")  # by the engine
# Each runs in a process of its own. The bars, which need no device, come last.
PARTS: Final = (
    "1 ceilings", "2 compiled cases", "3 kernel benches", "4 equality", "5 aborts", "6 an 8B model", "7 transformers",
)  # fmt: skip
BARS: Final = "bars"
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
        """What the earlier parts have found, and this process adds."""
        return load(self.work / PROGRESS)

    def part(self, name: str) -> bool:
        """Run a part. False if it failed. Raises KeyError for an unknown one."""
        call, begun, failed = self._calls()[name], time.monotonic(), False
        try:
            call()
            self.progress.done.append(name)
        except Exception:  # noqa: BLE001 - the next parts run all the same
            traceback.print_exc()
            failed = True
        self.progress.save(self.work / PROGRESS)
        print(f"{name}: {'FAILED' if failed else 'done'} in {time.monotonic() - begun:.0f} s", flush=True)
        return not failed

    def _calls(self) -> dict[str, Callable[[], None]]:
        """What each part does."""
        return {
            "1 ceilings": self._ceilings,
            "2 compiled cases": self._cases,
            "3 kernel benches": self._benches,
            "4 equality": self._equality,
            "5 aborts": self._aborts,
            "6 an 8B model": self._loads,
            "7 transformers": self._transformers,
            BARS: self.judge,
        }

    def _serving(self) -> "Serving":
        """The parts with the engine. Raises RuntimeError without its packages."""
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise RuntimeError(f"not installed: {', '.join(missing)}; this part needs the engine's packages")
        from bench.serving.parts import Serving

        return Serving(self.device, self.work, small=self.small)

    def _equality(self) -> None:
        self._serving().equality()

    def _aborts(self) -> None:
        self._serving().aborts()

    def _loads(self) -> None:
        self._keep(self._serving().loads(self._measured))

    def _transformers(self) -> None:
        self._keep(self._serving().transformers())

    def judge(self) -> None:
        """The bars. Raises AssertionError for those that were missed."""
        if self.device == "cpu":
            print("bars: skipped, no GPU is visible")
            return
        if missed := bars.misses(self.progress.results):
            raise AssertionError("; ".join(missed))

    @property
    def _measured(self) -> Ceilings:
        """What the first part measured, so that all results of a run have the same floors."""
        if self.progress.ceilings is None:
            self.progress.ceilings = measure(self.device, small=self.small)
        return self.progress.ceilings

    def _ceilings(self) -> None:
        print(f"copy {self._measured.copy / 1e9:.1f} GB/s, matmul {self._measured.matmul / 1e12:.2f} TFLOP/s")

    def _cases(self) -> None:
        correctness.check(self.device, small=self.small)

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
