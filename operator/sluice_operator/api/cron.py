"""Parses cron expressions and finds the newest matching time in a time zone, for the schedules of `spec.scaling`.

The fields are the five of crontab(5): minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), each
with lists, ranges and steps, months and days also by name; or one of its nicknames, such as `@daily`. If both day fields are restricted, a match of either is enough. A local time that the
clock skips in spring counts as one hour later; one that occurs twice in autumn counts as its first occurrence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MINUTE, _HOUR = "[0-5]?[0-9]", "([01]?[0-9]|2[0-3])"
_MONTHS: Final = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_WEEKDAYS: Final = "SUN|MON|TUE|WED|THU|FRI|SAT"
_DAY, _MONTH = "([12][0-9]|3[01]|0?[1-9])", f"(1[0-2]|0?[1-9]|{_MONTHS})"
_WEEKDAY = f"([0-7]|{_WEEKDAYS})"
_NICKNAMES: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip


def _list_of(number: str) -> str:
    one = rf"(\*|{number}(-{number})?)(/[1-9][0-9]?)?"
    return f"{one}(,{one})*"


_FIVE: Final = " ".join(map(_list_of, (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)))
CRON: Final = f"(?i)^({'|'.join(_NICKNAMES)}|{_FIVE})$"
TIMEZONE: Final = r"^[A-Za-z][A-Za-z0-9_+/-]*$"
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_NUMBERS: Final = {name: str(number) for number, name in enumerate(_MONTHS.split("|"), 1)} | {
    name: str(number) for number, name in enumerate(_WEEKDAYS.split("|"))
}
_NAME: Final = re.compile("[A-Z]+")
_DAYS_BACK: Final = 8  # days of look-back: an active window of at most a week began within them


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed cron expression: the values that each field allows."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # Monday is 0, as in Python
    either: bool  # both day fields are restricted: a match of one is enough

    def on(self, day: date) -> bool:
        """Return True if the expression has a time on this day."""
        by_month, by_week = day.day in self.days, day.weekday() in self.weekdays
        return day.month in self.months and (by_month or by_week if self.either else by_month and by_week)

    def backwards(self, day: date) -> Iterator[datetime]:
        """Yield the times of a day as naive datetimes, latest first."""
        for hour in reversed(self.hours):
            for minute in reversed(self.minutes):
                yield datetime.combine(day, time(hour, minute))


@lru_cache(maxsize=256)
def read(text: str) -> Cron:
    """Parse a cron expression. `text` must match CRON."""
    fields = _NAME.sub(lambda name: _NUMBERS[name.group()], _NICKNAMES.get(text.lower(), text.upper())).split(" ")
    minutes, hours, days, months, weekdays = (
        _numbers(field, low, high) for field, (low, high) in zip(fields, _RANGES, strict=True)
    )
    return Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset((number - 1) % 7 for number in weekdays),
        either=not fields[2].startswith("*") and not fields[4].startswith("*"),
    )


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo | None:
    """Return the time zone, or None if this process has no data for it (a schema cannot check that)."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def newest(text: str, where: ZoneInfo, now: float) -> float | None:
    """Return the last matching time at or before `now`, or None if there is none within eight days.

    `now` and the result are in seconds since 1970.
    """
    cron = read(text)
    today = datetime.fromtimestamp(now, UTC).astimezone(where).date()
    for back in range(_DAYS_BACK + 1):
        day = today - timedelta(days=back)
        if not cron.on(day):
            continue
        for moment in cron.backwards(day):
            at = moment.replace(tzinfo=where).timestamp()
            if at <= now:
                return at
    return None


def _numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = low if first == "*" else int(first)
        end = high if first == "*" or (step and not last) else int(last or first)
        if end < begin:  # a range such as 22-2 wraps around
            found.update(range(begin, high + 1, int(step or 1)))
            begin = low
        found.update(range(begin, end + 1, int(step or 1)))
    return found
