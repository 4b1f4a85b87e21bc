"""Sentences for a reader: wrapped at words where they are shown on a terminal, one line each elsewhere."""

import re
import shutil
import sys
import textwrap


def wrapped(sentence: str, width: int) -> str:
    """The sentence in lines of at most `width` columns, indented from the second on.

    A number stays with its unit, and a word that is longer than a line stays whole.
    """
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
