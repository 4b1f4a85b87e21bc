"""The store of the corpus's pieces. See `benchmark.run.store` for the format of the file."""

from pathlib import Path
from typing import Final

from sluice_sim.benchmark.corpus.tasks import OWN_PREFIX
from sluice_sim.benchmark.run.store import RESULTS as TRACK_RESULTS
from sluice_sim.benchmark.run.store import Store

RESULTS: Final = TRACK_RESULTS.parent / "corpus"


class CorpusStore(Store):
    """With `any_code`, pieces of peers, constants and schedules count as measured whatever code measured them.

    Sluice's own pieces never do: this is the loop of an engineer who changes the law."""

    def __init__(self, path: Path, *, any_code: bool = False) -> None:
        super().__init__(path, any_code=any_code)

    def _held(self, key: str) -> str | None:
        if key.startswith(OWN_PREFIX):
            return key if key in self._found else None
        return super()._held(key)
