"""Tables of plain text that fit a width. A column that may be cut ends in … where there is no room for it.

A width counts columns of the terminal, of which a character of Chinese, Japanese or Korean takes two. Characters that command a
terminal are escaped before they are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

from sluice.sentences import escaped

GAP: Final = 2  # columns of the terminal between two columns of the table
ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """`least`: the width to which the column may be cut; 0 if it is never cut."""

    heading: str
    right: bool = False
    least: int = 0


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The heading and the rows as lines; at most `width` wide as far as the columns may be cut."""
    cells = [[column.heading for column in columns], *([_on_one_line(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(row[place]) for row in cells) for place in range(len(columns))]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    while excess > 0:
        cuttable = [place for place, column in enumerate(columns) if column.least and widths[place] > column.least]
        if not cuttable:
            break
        widths[max(cuttable, key=lambda place: widths[place])] -= 1
        excess -= 1
    return [_line(columns, row, widths) for row in cells]


def _on_one_line(cell: str) -> str:
    return escaped(cell).replace("\n", "\\u000a")


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    shown = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        cut = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + ELLIPSIS
        filling = " " * (width - cell_len(cut))
        shown.append(filling + cut if column.right else cut + filling)
    return (" " * GAP).join(shown).rstrip()
