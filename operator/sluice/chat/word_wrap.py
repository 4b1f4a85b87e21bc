"""Wraps streamed text at words, although its pieces end anywhere.

A word is held back until the text after it shows that it is complete. A word that is longer than a line is left to the
terminal, so that an address can still be copied. Characters of double width may be separated from each other anywhere.
"""

from collections.abc import Callable
from typing import Final

from rich.cells import cell_len

TAB: Final = 8  # columns


class WordWrap:
    """The state of one text. `width` returns the columns of the terminal, which may change while the text streams."""

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0  # of the cursor
        self._blanks = ""  # before the word
        self._word = ""  # not shown yet

    def feed(self, text: str) -> str:
        """The part that can be shown after the next piece of text. Control characters are dropped."""
        return "".join(self._take(character) for character in text)

    def end(self) -> str:
        """The held-back end of the text."""
        return self._complete()

    def _take(self, character: str) -> str:
        if character == "\n":
            shown = self._complete() + "\n"
            self._column, self._blanks = 0, ""
            return shown
        if character in " \t":
            shown = self._complete()
            column = self._column + len(self._blanks)
            self._blanks += " " if character == " " else " " * (TAB - column % TAB)
            return shown
        if not character.isprintable() and not _joins(character):
            return ""
        shown = self._complete() if cell_len(character) > 1 else ""
        self._word += character
        return shown

    def _complete(self) -> str:
        """The held-back word, at the start of a new line if it does not fit into this one."""
        if not self._word:
            return ""
        width, length = max(1, self._width()), cell_len(self._word)
        gap, self._blanks, word, self._word = self._blanks, "", self._word, ""
        if self._column and self._column + len(gap) + length > width:
            self._column, gap = 0, ""
            word = "\n" + word
        after = self._column + len(gap) + length
        self._column = (after - 1) % width + 1
        return gap + word


def _joins(character: str) -> bool:
    """True for the joiners and variation selectors of composed characters."""
    return character in "\u200c\u200d\ufe0e\ufe0f"
