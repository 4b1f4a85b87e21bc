"""`python -m sluice.chart --write | --check`, in the repository's root."""

import sys
from pathlib import Path
from typing import Final

from sluice import contract
from sluice.chart.values_reference import reference

CHART: Final = Path("charts/sluice")


def main(arguments: list[str], root: Path) -> int:
    """Return the exit code: 1 if the committed reference differs from values.yaml, 2 for a wrong option or folder."""
    values, written = root / CHART / "values.yaml", root / CHART / "README.md"
    if arguments not in (["--write"], ["--check"]) or not values.is_file():
        sys.stderr.write("usage, in the repository's root: python -m sluice.chart --write | --check\n")
        return contract.EXIT_USAGE
    text = reference(values.read_text(encoding="utf-8"))
    if arguments == ["--write"]:
        written.write_text(text, encoding="utf-8")
    elif not written.is_file() or written.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{CHART / 'README.md'} differs from values.yaml: run make generate\n")
        return contract.EXIT_FAILED
    return contract.EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path()))
