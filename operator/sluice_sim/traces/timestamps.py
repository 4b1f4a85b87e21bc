"""One request per line with a time in milliseconds: `timestamp_ms,input_tokens,output_tokens` as JSON lines or CSV."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sluice_sim.traces.arrival import Arrival, BadTrace, Load
from sluice_sim.traces.fields import MOST_SECONDS, field, number_of, table, tokens_field, tokens_of

COLUMNS: Final = ("timestamp_ms", "input_tokens", "output_tokens")
MOST_MILLISECONDS: Final = 4_102_444_800_000.0  # 2100-01-01 in milliseconds since 1970
_WHAT: Final = "milliseconds"

Timed = tuple[str, float, int, int]  # (place of the time in the file, milliseconds, prompt, output)


def csv_lines(lines: Iterator[str], header: Sequence[str]) -> Load:
    """The requests of a CSV whose header was already read. Raises BadTrace."""
    return timed(
        (
            f"line {line}, column {COLUMNS[0]}",
            number_of(stamp, line, COLUMNS[0], _WHAT, MOST_MILLISECONDS),
            tokens_of(prompt, line, COLUMNS[1]),
            tokens_of(output, line, COLUMNS[2]),
        )
        for line, (stamp, prompt, output) in table(lines, header, COLUMNS)
    )


def json_lines(found: Iterable[tuple[int, dict[str, Any]]]) -> Load:
    """The requests of a file with one JSON object per line. Raises BadTrace."""
    return timed(
        (
            f"line {line}, field {COLUMNS[0]}",
            field(value, COLUMNS[0], line, f"{_WHAT} ≥ 0", MOST_MILLISECONDS),
            tokens_field(value, COLUMNS[1], line),
            tokens_field(value, COLUMNS[2], line),
        )
        for line, value in found
    )


def timed(found: Iterable[Timed]) -> Load:
    """Arrivals sorted by time, since a log may be in the order of completion.

    Times of over a year count from 1970: the trace then begins at its first request, and a note names the date.
    Raises BadTrace if the times span over a year."""
    rows = sorted(found, key=lambda row: row[1])
    unix = bool(rows) and rows[-1][1] > 1000.0 * MOST_SECONDS
    begin = rows[0][1] if unix else 0.0
    arrivals = []
    for place, stamp, prompt, output in rows:
        at = (stamp - begin) / 1000.0
        if at > MOST_SECONDS:
            raise BadTrace(f"{place}: expected a time within a year of the first, found {stamp:.0f}")
        arrivals.append(Arrival(at, prompt, output))
    if not unix:
        return Load(arrivals)
    date = datetime.fromtimestamp(begin / 1000.0, UTC)
    return Load(arrivals, (f"times count from the first request, {date:%Y-%m-%d %H:%M:%S} UTC in the file",))
