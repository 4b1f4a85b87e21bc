"""What the parts of a run have found so far, in a file that their processes hand on."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.ceilings import Ceilings
from bench.report import Result


@dataclass
class Progress:
    """The results, the parts that ended without a failure, and what the device reaches at most, once it is measured."""

    results: list[Result] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    ceilings: Ceilings | None = None

    def save(self, path: Path) -> None:
        """Write the file anew."""
        path.write_text(json.dumps(asdict(self)))

    def failed(self, names: Sequence[str]) -> list[str]:
        """Those of the parts that did not end, or with a failure."""
        return [name for name in names if name not in self.done]


def load(path: Path) -> Progress:
    """Read the file; without one nothing was found yet."""
    if not path.exists():
        return Progress()
    found = json.loads(path.read_text())
    ceilings = None if found["ceilings"] is None else Ceilings(**found["ceilings"])
    return Progress([Result(**each) for each in found["results"]], found["done"], ceilings)
