"""`python -m sluice_engine.server.openapi --write | --check`."""

import json
import sys

from sluice_engine.server.openapi.document import document
from sluice_engine.server.openapi.served import PATH


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 if the committed file differs from the code, 2 for a wrong option."""
    if arguments not in (["--write"], ["--check"]):
        sys.stderr.write("usage: python -m sluice_engine.server.openapi --write | --check\n")
        return 2
    text = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    if arguments == ["--write"]:
        PATH.write_text(text, encoding="utf-8")
        return 0
    if PATH.is_file() and PATH.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{PATH.name} differs from the fields and types of the API: run make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
