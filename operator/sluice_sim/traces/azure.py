"""Azure's LLM inference traces (CC-BY-4.0): TIMESTAMP, ContextTokens, GeneratedTokens."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from sluice_sim.traces.arrival import Arrival, BadTrace
from sluice_sim.traces.fields import MOST_SECONDS, shown, table, tokens_of

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def azure(lines: Iterator[str], header: Sequence[str]) -> Iterator[Arrival]:
    """Arrivals in the file's order, timed from its first line. Raises BadTrace."""
    first: datetime | None = None
    last = 0.0
    for line, (stamp, prompt, output) in table(lines, header, COLUMNS):
        moment = _moment(stamp, line)
        first = moment if first is None else first
        try:
            at = (moment - first).total_seconds()
        except TypeError as error:
            raise BadTrace(f"line {line}, column {COLUMNS[0]}: expected a time zone on all lines or on none") from error
        if at < last:
            raise BadTrace(f"line {line}, column {COLUMNS[0]}: expected times in order, {shown(stamp)} is earlier")
        if at > MOST_SECONDS:
            raise BadTrace(
                f"line {line}, column {COLUMNS[0]}: expected a time within a year of the first, found {shown(stamp)}"
            )
        last = at
        yield Arrival(at, tokens_of(prompt, line, COLUMNS[1]), tokens_of(output, line, COLUMNS[2]))


def _moment(text: str, line: int) -> datetime:
    whole, _, fraction = text.partition(".")
    try:  # Azure writes seven fractional digits, Python reads six
        return datetime.fromisoformat(f"{whole}.{fraction[:6]}" if fraction.isdecimal() else text)
    except ValueError as error:
        raise BadTrace(
            f"line {line}, column {COLUMNS[0]}: expected a time like 2023-11-16 18:15:46.68, found {shown(text)}"
        ) from error
