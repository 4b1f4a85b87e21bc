"""Provenance of a piece: a digest of the source files that it depends on, and the commit that was checked out.

The digest covers file contents only, without paths, comments and docstrings. A move that changes imports changes it;
`benchmark.run.rekey` then accepts the stored pieces for the new digest. A piece keeps the digest that measured it.
"""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sluice_sim.benchmark.run.sources import sources
from sluice_sim.benchmark.run.statements import code_of
from sluice_sim.cluster.scenario import Mode

OTHER_CODE: Final = "measured_by_other_code"  # key in a piece's value: digest of the code that measured it
MARK: Final = "*"
LENGTH: Final = 20  # hexadecimal digits of a digest


@lru_cache(maxsize=64)
def code_digest(law: str, mode: Mode) -> str:
    """Digest of all files behind a run of the law."""
    return digest_of(sources(law, mode))


def digest_of(files: Iterable[Path]) -> str:
    """Digest of the files' contents, independent of their order and names."""
    return hashlib.sha256("\n".join(sorted(map(_content, files))).encode()).hexdigest()[:LENGTH]


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The output of `git describe` for this checkout, with "-dirty" if it was changed; None outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def other_digests(values: Iterable[dict[str, Any]]) -> set[str]:
    """The digests of other code that measured any of these values."""
    return {str(value[OTHER_CODE]) for value in values if OTHER_CODE in value}


def footnote(codes: Iterable[str]) -> Iterator[str]:
    """The explanation of the mark, as one line; no line if `codes` is empty."""
    found = sorted(set(codes))
    if found:
        yield f"{MARK} measured by other code than this: {', '.join(code[:10] for code in found)}"


@lru_cache(maxsize=1024)
def _content(path: Path) -> str:
    held = code_of(path.read_text(encoding="utf-8")).encode() if path.suffix == ".py" else path.read_bytes()
    return hashlib.sha256(held).hexdigest()
