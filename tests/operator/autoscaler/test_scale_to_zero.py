"""Scale to zero, scale from zero, and schedules."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.operator.autoscaler.fleet import Story, spec

ZERO = {"minReplicas": 0, "maxReplicas": 3, "scaleToZeroAfterSeconds": 120}


def at_zero() -> Story:
    story = Story(spec=spec(scaling=ZERO), held=0, cold_start=40)
    story.run(60, 1.0)
    story.run(400, 0.0)
    return story


def test_the_last_replica_is_removed_after_its_idle_time_and_the_reason_names_what_starts_it() -> None:
    story = Story(spec=spec(scaling=ZERO), held=0)
    story.run(60, 1.0)
    quiet = story.now
    story.run(400, 0.0)
    assert story.replicas == 0
    when = next(at for at, d in story.decisions if d.replicas == 0)
    assert 120 <= when - quiet <= 170  # the fleet drains first
    assert story.sentences()[-1].startswith("1 → 0 replicas: idle. No request came for 120 s")


def test_one_request_in_time_keeps_the_last_replica() -> None:
    story = Story(spec=spec(scaling=ZERO), held=0)
    for _ in range(6):
        story.run(90, 0.0)
        story.run(5, 0.4)
    assert story.replicas == 1


def test_without_a_gateway_that_holds_requests_one_replica_stays() -> None:
    story = Story(spec=spec(scaling=ZERO))
    story.run(800, 0.0)
    assert story.replicas == 1


def test_a_burst_at_the_gateway_starts_one_replica_without_flapping() -> None:
    story = at_zero()
    said = len(story.sentences())
    story.run(35, 5.0)
    assert (story.replicas, len(story.loading)) == (1, 1)
    assert len(story.sentences()) == said + 1
    assert "25 requests are held by the gateway" in story.sentences()[-1]
    story.run(10, 0.0)
    woken = {d.replicas for d in story.run(115, 0.0)}
    assert woken == {1}


def test_a_fleet_at_zero_stays_there_without_requests() -> None:
    assert {d.replicas for d in at_zero().run(600, 0.0)} == {0}


def test_a_starting_replica_gives_the_retry_after() -> None:
    story = at_zero()
    story.run(5, 1.0)
    expected = [d.retry_after for d in story.run(30, 1.0)]
    assert all(one is not None for one in expected)
    assert expected == sorted(expected, reverse=True)  # type: ignore[type-var]


def test_a_schedule_raises_the_minimum_in_its_own_time_zone_and_the_reason_names_its_end() -> None:
    begins = datetime(2026, 11, 23, 8, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Monday
    schedule = {"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "durationSeconds": 3600, "minReplicas": 3}
    story = Story(spec=spec(scaling={"maxReplicas": 4, "schedules": [schedule]}))
    story.wall = begins.timestamp() - story.now - 300
    assert {d.replicas for d in story.run(290, 0.1)} == {1}
    story.run(20, 0.1)
    assert story.replicas == 3
    assert story.sentences()[-1] == (
        "1 → 3 replicas: the schedule 0 8 * * 1-5 asks for 3 until Mon 09:00 (Europe/Berlin)."
    )
    story.run(3500, 0.1)
    assert story.replicas == 3
    story.run(400, 0.1)
    assert story.replicas == 1


def test_a_schedules_replicas_are_ordered_a_measured_cold_start_early() -> None:
    story = Story(spec=spec(scaling={"maxReplicas": 4}), cold_start=100)
    story.run(60, 1.25)
    story.run(400, 4.0)
    story.run(400, 1.0)
    begins = datetime.fromtimestamp(1_795_000_000, UTC).replace(minute=0, second=0)
    schedule = {"cron": f"0 {begins.hour} * * *", "durationSeconds": 3600, "minReplicas": 4}
    story.spec = spec(scaling={"maxReplicas": 4, "schedules": [schedule]})
    story.wall = begins.timestamp() - story.now - 300
    story.run(300, 1.0)
    assert len(story.engines) >= 3  # one more than without: ordered at least 95 s before it begins
    ordered = next(at for at, d in story.decisions if d.replicas == 4)
    assert story.now - ordered == pytest.approx(100, abs=10)


def test_without_calendar_time_schedules_do_not_apply() -> None:
    schedule = {"cron": "* * * * *", "durationSeconds": 3600, "minReplicas": 3}
    story = Story(spec=spec(scaling={"schedules": [schedule]}))
    assert {d.replicas for d in story.run(60, 0.1)} == {1}
