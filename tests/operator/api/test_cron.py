"""Cron against the slow way: every minute looked at, backwards."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_operator.api.cron import CRON, newest, read

FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "5,50", "10-20/5", "58"]),
    st.sampled_from(["*", "8", "*/6", "22-2", "0,23"]),
    st.sampled_from(["*", "1", "13", "28-31", "*/10"]),
    st.sampled_from(["*", "2,6", "10-12"]),
    st.sampled_from(["*", "1-5", "0", "7", "6"]),
)


def allows(field: str, value: int, low: int, high: int) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin, end = (low, high) if first == "*" else (int(first), int(last or first))
        numbers = list(range(begin, end + 1)) if begin <= end else [*range(begin, high + 1), *range(low, end + 1)]
        if value in numbers[:: int(step or 1)]:
            return True
    return False


def matches(fields: tuple[str, ...], local: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    if not allows(minute, local.minute, 0, 59) or not allows(hour, local.hour, 0, 23):
        return False
    by_month = allows(day, local.day, 1, 31)
    by_week = any(allows(weekday, number, 0, 7) for number in {local.isoweekday(), local.isoweekday() % 7})
    either = not day.startswith("*") and not weekday.startswith("*")
    days = by_month or by_week if either else by_month and by_week
    return allows(month, local.month, 1, 12) and days


@settings(max_examples=60, deadline=None)
@given(FIELDS, st.integers(1_700_000_000, 1_900_000_000), st.sampled_from(["UTC", "Asia/Kolkata"]))
def test_the_newest_time_is_the_first_that_matches_backwards(fields: tuple[str, ...], now: int, zone: str) -> None:
    found = newest(" ".join(fields), ZoneInfo(zone), float(now))
    moment = datetime.fromtimestamp(now - now % 60, ZoneInfo(zone))
    tried = [moment - timedelta(minutes=minutes) for minutes in range(2 * 24 * 60)]
    expected = next((each for each in tried if matches(fields, each)), None)
    if expected is None:
        assert found is None or found < tried[-1].timestamp()
    else:
        assert found == expected.timestamp()


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        ("2026-03-29T12:00+00:00", "2026-03-29T01:30+00:00"),  # 02:30 is skipped: an hour later by the clock
        ("2026-10-25T12:00+00:00", "2026-10-25T00:30+00:00"),  # 02:30 comes twice: the first
    ],
)
def test_the_days_on_which_the_clock_is_changed(now: str, wanted: str) -> None:
    found = newest("30 2 * * *", ZoneInfo("Europe/Berlin"), datetime.fromisoformat(now).timestamp())
    assert found is not None
    assert datetime.fromtimestamp(found, UTC) == datetime.fromisoformat(wanted)


@pytest.mark.parametrize(
    ("named", "numbered"),
    [
        ("0 8 * * MON-FRI", "0 8 * * 1-5"),
        ("0 8 * * fri-Mon", "0 8 * * 5-1"),
        ("0 8 * * SAT-SUN", "0 8 * * 6,0"),
        ("*/5 0 1 Jan,jun-DEC/2 sun", "*/5 0 1 1,6-12/2 0"),
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_names_and_nicknames_stand_for_numbers(named: str, numbered: str) -> None:
    assert re.match(CRON, named) and re.match(CRON, numbered)
    assert read(named) == read(numbered)


@pytest.mark.parametrize(
    "text", ["", "* * * *", "60 * * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "@reboot", "@daily *", "* * * MON *", "* * * * JAN",
     "* MON * * *", "* * * * MONDAY"]
)  # fmt: skip
def test_what_is_no_cron_does_not_match(text: str) -> None:
    assert re.match(CRON, text) is None
