"""The parts of `make gpu` with the engine."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from bench.ceilings import Ceilings
from bench.report import Result
from bench.serving import aborts, equality, loads, peer

from sluice_engine.core.engine import EngineLoop


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

    @cached_property
    def _engine(self) -> EngineLoop:
        return loads.begin(self.device, self.work / "loads", self._sizes)

    def loads(self, ceilings: Ceilings) -> Iterator[Result]:
        """See `loads.py`."""
        yield from loads.measure(self._engine, self._sizes, ceilings)

    def transformers(self) -> Iterator[Result]:
        """See `peer.py`: the engine first, and then its memory is freed for transformers."""
        yield peer.engine_result(self._engine, self._sizes, small=self.small)
        del self.__dict__["_engine"]
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        yield from peer.transformers_result(self.device, self._sizes, small=self.small)
