"""Shows an answer as it streams: wrapped at words on a terminal, after the model's reasoning in dim letters."""

import shutil
import sys
from typing import Final

from rich.console import Console

from sluice.chat.word_wrap import WordWrap

DIM: Final = "\x1b[2m"
RESET: Final = "\x1b[0m"


class Output:
    """One answer on the standard output. Through a pipe it is the text alone."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._dims = self._terminal and Console().color_system is not None
        self._wrap = _wrap()
        self._reasoning = False  # the last piece was reasoning
        self._shown = False

    def reasoning(self, piece: str) -> None:
        """Shows a piece of reasoning, on a terminal."""
        if not self._terminal:
            return
        if not self._reasoning:
            self._end_line()
            _write(DIM if self._dims else "")
        self._reasoning = self._shown = True
        _write(self._wrap.feed(piece))

    def text(self, piece: str) -> None:
        """Shows a piece of the answer."""
        if self._reasoning:
            self._end_line()
        self._shown = True
        _write(self._wrap.feed(piece) if self._terminal else piece)

    def end(self) -> None:
        """Ends the last line."""
        self._end_line()

    def _end_line(self) -> None:
        if self._shown:
            _write(
                (self._wrap.end() if self._terminal else "") + (RESET if self._reasoning and self._dims else "") + "\n"
            )
        self._wrap, self._reasoning, self._shown = _wrap(), False, False


def _wrap() -> WordWrap:
    return WordWrap(lambda: shutil.get_terminal_size().columns)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
