"""Identifies the code that a number was measured with, because a number of other code is not valid for this one."""

from dataclasses import dataclass
from pathlib import Path

from sluice_sim.benchmark.run.provenance import commit, digest_of

ROOT = Path(__file__).parents[3]
MEASURED = ("engine", "kernels/sluice_kernels", "operator/sluice", "operator/sluice_law", "operator/sluice_operator")


@dataclass(frozen=True, slots=True)
class Code:
    """Digest of all measured code, without comments and docstrings, and the commit that was checked out."""

    digest: str
    commit: str | None

    @property
    def short(self) -> str:
        """Short form for a title."""
        return f"code {self.digest[:10]} ({self.commit or 'no commit known'})"


def describe(root: Path = ROOT) -> Code:
    """The code of a checkout; by default this one."""
    files = (path for folder in MEASURED for path in (root / folder).rglob("*") if path.suffix in (".py", ".c", ".h"))
    return Code(digest_of(files), commit() if root == ROOT else None)
