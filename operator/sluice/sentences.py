"""Texts for a reader: wrapped at words where they are shown on a terminal, and without characters that command one."""

import re
import shutil
import sys
import textwrap
from typing import Final

# Control characters but the line feed, directions of writing, other ends of lines, and halves of surrogate pairs.
_COMMANDS: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """The text with \\uXXXX for each character that would move the cursor, or hide or reorder what a terminal shows.

    JSON with line feeds between its values keeps its meaning: such characters are only in its strings.
    """
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def wrapped(sentence: str, width: int) -> str:
    """The sentence in lines of at most `width` columns, indented from the second on.

    A number stays with its unit, and a word that is longer than a line stays whole. Other spaces than blanks are blanks.
    """
    sentence = escaped(re.sub(r"[\t\n\v\f\r]", " ", sentence))
    indent = " " * (len(sentence) - len(sentence.lstrip()) + 2)
    joined = re.sub(r"(?<=\d) (?=\S)", "\N{NO-BREAK SPACE}", sentence)
    lines = textwrap.wrap(joined, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def say(sentence: str, *, err: bool = False) -> None:
    """Print the sentence to stdout or stderr."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        sentence = wrapped(sentence, shutil.get_terminal_size().columns)
    stream.write(sentence + "\n")
    stream.flush()
