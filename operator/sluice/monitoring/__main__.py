"""`python -m sluice.monitoring --write | --check`, in the repository's root."""

import sys
from pathlib import Path

from sluice import contract
from sluice.monitoring.files import files


def main(arguments: list[str], root: Path) -> int:
    """Return the exit code: 1 if a committed file differs from the code, 2 for a wrong option or folder."""
    if arguments not in (["--write"], ["--check"]) or not (root / "pyproject.toml").is_file():
        sys.stderr.write("usage, in the repository's root: python -m sluice.monitoring --write | --check\n")
        return contract.EXIT_USAGE
    stale = {path: text for path, text in files().items() if _text(root / path) != text}
    for path, text in stale.items():
        if arguments == ["--write"]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        else:
            sys.stderr.write(f"{path} differs from operator/sluice/monitoring: run make generate\n")
    return contract.EXIT_FAILED if stale and arguments == ["--check"] else contract.EXIT_OK


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path()))
