"""The table of `sluice up`: one row for the model and one per replica, in columns whose widths depend on the terminal only.

So no width changes from one refresh to the next. What does not fit is left out by rank, never squeezed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.table import Table
from rich.text import Text

from sluice.up.snapshot import PodLine, Snapshot

GAP: Final = 2  # columns of the terminal between two columns of the table
LEAST_NAME: Final = 16  # "  replica 8b1a32"
MOST_NAME: Final = 40
STATE_WIDTH: Final = 8  # "draining"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers. Those of the lowest rank are left out last."""

    heading: str
    width: int
    rank: int
    of_model: Callable[[Snapshot], str]
    of_replica: Callable[[PodLine], str]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def milliseconds(value: float | None) -> str:
    """A latency in at most seven characters."""
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.1f} ms"
    return f"{value:.0f} ms" if value < 9999.5 else f"{min(value / 1000, 99999):.0f} s"


COLUMNS: Final = (
    Column("KV %", 5, 4, lambda model: _number(model.kv_percent), lambda replica: _number(replica.kv_percent)),
    Column("TTFT", 7, 2, lambda model: milliseconds(model.ttft_ms), lambda _: ""),
    Column("ITL", 7, 3, lambda model: milliseconds(model.itl_ms), lambda _: ""),
    Column("LIMIT", 5, 5, lambda model: _number(model.limit), lambda replica: _number(replica.limit)),
    Column("QUEUE", 5, 6, lambda model: _number(model.queue), lambda replica: _number(replica.queue)),
    Column("RUN", 4, 0, lambda model: str(model.running), lambda replica: _number(replica.running)),
    Column("WAIT", 4, 1, lambda model: str(model.waiting), lambda replica: _number(replica.waiting)),
)


def columns_for(width: int) -> tuple[Column, ...]:
    """The columns of numbers that a terminal of `width` has room for, in their order in the table."""
    room = width - LEAST_NAME - GAP - STATE_WIDTH
    chosen = []
    for column in sorted(COLUMNS, key=lambda column: column.rank):
        room -= GAP + column.width
        if room < 0:
            break
        chosen.append(column)
    return tuple(column for column in COLUMNS if column in chosen)


def name_width(width: int) -> int:
    """The width of the first column: what the others leave of `width`, within bounds."""
    used = GAP + STATE_WIDTH + sum(GAP + column.width for column in columns_for(width))
    return max(LEAST_NAME, min(MOST_NAME, width - used))


def status_table(snapshot: Snapshot, width: int) -> Table:
    """The table for a terminal of `width`."""
    columns = columns_for(width)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    table.add_column("NAME", width=name_width(width), no_wrap=True)
    table.add_column("STATE", width=STATE_WIDTH, no_wrap=True)
    for column in columns:
        table.add_column(column.heading, width=column.width, justify="right", no_wrap=True)
    ready = f"{snapshot.ready}/{snapshot.desired}"
    table.add_row(Text(snapshot.name), ready, *(column.of_model(snapshot) for column in columns))
    for replica in snapshot.pods:
        cells = (column.of_replica(replica) for column in columns)
        table.add_row(f"  {short_name(replica.name)}", replica.phase, *cells, style="dim")
    return table


def short_name(pod: str) -> str:
    """A replica by the part of its name that differs from the others': `replica 8b1a32`."""
    return f"replica {pod.rpartition('-')[2]}"
