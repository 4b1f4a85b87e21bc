"""The parts of `make gpu`. A part that needs what a failed one had to make fails too; all others run."""

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench import bars, correctness, peers, report, speed
from bench.ceilings import Ceilings, measure

Part = tuple[str, Callable[[], None]]
NEEDED = ("transformers", "msgspec")  # by the engine


@dataclass
class Run:
    """A run on one device, and what it has found so far."""

    device: str
    folder: Path  # of the results
    small: bool
    ceilings: Ceilings | None = None
    results: list[report.Result] = field(default_factory=list)

    def kernels(self) -> tuple[Part, ...]:
        """The parts that need torch and triton only."""
        return (
            ("1 ceilings", self._ceilings),
            ("2 compiled cases", lambda: correctness.check(self.device, small=self.small)),
            ("3 kernel benches", self._benches),
        )

    def serving(self, work: Path) -> tuple[Part, ...]:
        """The parts that need the engine. `work`: a folder for models."""
        names = ("4 equality", "5 aborts", "6 an 8B model", "7 transformers")
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return tuple((name, lambda: _missing(missing)) for name in names)
        from bench.serving.parts import Serving  # needs the engine's packages

        serving = Serving(self.device, work, small=self.small)
        calls = (
            serving.equality,
            serving.aborts,
            lambda: self._keep(serving.loads(self._measured())),
            lambda: self._keep(serving.transformers()),
        )
        return tuple(zip(names, calls, strict=True))

    def judge(self) -> None:
        """The bars. Raises AssertionError for those that were missed."""
        if self.device == "cpu":
            print("bars: skipped, no GPU is visible")
            return
        if missed := bars.misses(self.results):
            raise AssertionError("; ".join(missed))

    def _measured(self) -> Ceilings:
        if self.ceilings is None:
            raise RuntimeError("part 1 failed, so there is no floor to compare with")
        return self.ceilings

    def _ceilings(self) -> None:
        self.ceilings = found = measure(self.device, small=self.small)
        print(f"copy {found.copy / 1e9:.1f} GB/s, matmul {found.matmul / 1e12:.2f} TFLOP/s")

    def _benches(self) -> None:
        self._keep(speed.measure(self.device, self._measured(), small=self.small))
        self._keep(peers.measure(self.device, self._measured(), small=self.small))

    def _keep(self, results: Iterable[report.Result]) -> None:
        """Print results, and write them with the earlier ones even if a later one fails."""
        first = len(self.results)
        try:
            for one in results:
                self.results.append(one)
                of = f", {one.fraction:.1%} of the floor" if one.fraction else ""
                print(f"{one.what}, {one.shape}: {one.seconds * 1e6:.0f} µs{of}", flush=True)
        finally:
            report.write(self.results, first, self._measured(), self.folder)


def _missing(names: list[str]) -> None:
    raise RuntimeError(f"not installed: {', '.join(names)}; this part needs the engine's packages")
