"""Compares a screen with the committed text of it, after volatile numbers are masked.

`SCREENS=write` in the environment writes the files anew: read them before they are committed. Two rules mask what
differs between two runs, and nothing else:

1. Always: the port of an address on this machine becomes `#####`, and the temporary folder of a test becomes `FOLDER`.
2. Where a test names it: each match of a regular expression becomes the text beside it, such as `# ms`; with blanks
   before both, the text is aligned to the right end of the match, as the columns of a table are.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.screens.terminal import Terminal

GOLDENS: Final = Path(__file__).parent
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_NONE: Final[Mapping[str, str]] = {}


def masked(screen: str, masks: Mapping[str, str] = _NONE, folder: Path | None = None) -> str:
    """The screen with volatile numbers replaced by the rules of this module."""
    if folder is not None:
        screen = screen.replace(str(folder), "FOLDER")
    screen = _PORT.sub("#####", screen)
    for pattern, text in masks.items():
        screen = re.sub(pattern, partial(_aligned, text), screen)
    return screen


def _aligned(text: str, found: re.Match[str]) -> str:
    return text.lstrip().rjust(len(found[0])) if found[0].startswith("  ") and text.startswith("  ") else text


def compare(name: str, terminal: Terminal, masks: Mapping[str, str] = _NONE, folder: Path | None = None) -> None:
    """Compare the command line and the screen with `NAME.txt`, or write that file.

    Raises AssertionError with both texts if they differ.
    """
    shown = " ".join(("$ sluice", *terminal.arguments))
    found = masked(f"{shown}\n{terminal.screen()}", masks, folder)
    file = GOLDENS / f"{name}.txt"
    if os.environ.get("SCREENS") == "write":
        file.write_text(found)
    wanted = file.read_text() if file.exists() else f"(no {file.name}: SCREENS=write makes it)\n"
    assert found == wanted, f"{name} shows:\n{found}\ninstead of:\n{wanted}"
