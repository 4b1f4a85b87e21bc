"""The parts of `make gpu` with the engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.ceilings import Ceilings
from bench.report import Result
from bench.serving import aborts, equality, loads, peer


@dataclass
class Serving:
    """`work`: a folder for models."""

    device: str
    work: Path
    small: bool

    def equality(self) -> None:
        """See `equality.py`."""
        equality.check(self.device, self.work / "equality", small=self.small)

    def aborts(self) -> None:
        """See `aborts.py`."""
        aborts.check(self.device, self.work / "aborts", small=self.small)

    @cached_property
    def _sizes(self) -> loads.Sizes:
        return loads.sizes_of(small=self.small)

    def loads(self, ceilings: Ceilings) -> Iterator[Result]:
        """See `loads.py`; then the load that transformers gets too."""
        engine = loads.begin(self.device, self.work / "loads", self._sizes)
        yield from loads.measure(engine, self._sizes, ceilings)
        yield peer.engine_result(engine, self._sizes, small=self.small)

    def transformers(self) -> Iterator[Result]:
        """See `peer.py`. The engine's process has ended, so that its memory is free."""
        yield from peer.transformers_result(self.device, self._sizes, small=self.small)
