"""The election against a Lease in memory; time is injected."""

import contextlib
from dataclasses import dataclass, field

import pytest

from sluice_operator.cluster.client import ClusterError
from sluice_operator.cluster.lease import LeaseRecord
from sluice_operator.runtime.leader_election import Election, Times
from tests.operator.fake_cluster import Clock


@dataclass
class Shelf:
    """A Lease with optimistic locking."""

    record: LeaseRecord | None = None
    broken: bool = False
    writes: int = 0
    log: list[str] = field(default_factory=list)

    async def read(self) -> LeaseRecord | None:
        if self.broken:
            raise ClusterError("connection refused")
        return self.record

    async def create(self, holder: str, duration: float) -> bool:
        if self.record is not None:
            return False
        return self._put(holder, duration)

    async def replace(self, record: LeaseRecord, holder: str, duration: float) -> bool:
        if self.record is None or self.record.version != record.version:
            return False
        return self._put(holder, duration)

    def _put(self, holder: str, duration: float) -> bool:
        self.writes += 1
        self.log.append(holder)
        self.record = LeaseRecord(holder, duration, str(self.writes))
        return True


class Stuck(Exception):
    """A candidate waited longer than the test lets it."""


def candidate(shelf: Shelf, name: str, clock: Clock, until: float = float("inf")) -> Election:
    async def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now > until:
            raise Stuck

    return Election(shelf, name, Times(), clock=clock, sleep=sleep)


async def test_the_first_candidate_acquires_the_lease_and_releases_it() -> None:
    shelf = Shelf()
    election = candidate(shelf, "a", Clock())
    await election.acquire()
    assert shelf.record is not None and shelf.record.holder == "a"
    await election.release()
    assert shelf.record is not None and shelf.record.holder == ""


async def test_a_second_candidate_waits_the_whole_duration_by_its_own_clock() -> None:
    shelf, clock = Shelf(LeaseRecord("a", 15.0, "0")), Clock()
    started = clock.now
    await candidate(shelf, "b", clock).acquire()
    assert 15.0 <= clock.now - started <= 18.0


async def test_a_released_lease_is_taken_at_once() -> None:
    shelf, clock = Shelf(LeaseRecord("", 1.0, "0")), Clock()
    started = clock.now
    await candidate(shelf, "b", clock).acquire()
    assert clock.now == started


async def test_a_renewing_holder_is_never_displaced() -> None:
    shelf, clock = Shelf(), Clock()
    await candidate(shelf, "a", clock).acquire()
    holder = candidate(shelf, "a", clock)

    async def sleep_while_a_renews(seconds: float) -> None:
        clock.now += seconds
        await holder._attempt()
        if clock.now > 2000:
            raise Stuck

    rival = Election(shelf, "b", Times(), clock=clock, sleep=sleep_while_a_renews)
    with contextlib.suppress(Stuck):
        await rival.acquire()
    assert set(shelf.log) == {"a"}


async def test_a_holder_without_connection_stops_before_another_candidate_may_start() -> None:
    shelf, clock = Shelf(), Clock()
    election = candidate(shelf, "a", clock)
    await election.acquire()
    shelf.broken = True
    lost_after = clock.now
    why = await election.hold()
    assert "could not be renewed" in why
    assert 10.0 <= clock.now - lost_after < 15.0


async def test_a_holder_that_reads_another_holder_stops_at_once() -> None:
    shelf, clock = Shelf(), Clock()
    election = candidate(shelf, "a", clock)
    await election.acquire()
    shelf.record = LeaseRecord("b", 15.0, "x")
    started = clock.now
    assert "b holds the Lease" in await election.hold()
    assert clock.now - started == Times().retry


async def test_the_holder_recreates_a_deleted_lease() -> None:
    shelf, clock = Shelf(), Clock()
    election = candidate(shelf, "a", clock, until=1010.0)
    await election.acquire()
    shelf.record = None
    with contextlib.suppress(Stuck):
        await election.hold()
    assert shelf.record is not None and shelf.record.holder == "a"


async def test_a_candidate_leaves_a_deleted_lease_to_its_holder_as_long_as_that_may_act() -> None:
    shelf, clock = Shelf(LeaseRecord("a", 15.0, "0")), Clock()
    waiting = candidate(shelf, "b", clock, until=clock.now + 4)
    with contextlib.suppress(Stuck):
        await waiting.acquire()
    shelf.record, deleted = None, clock.now
    assert not await waiting._attempt() and shelf.log == []
    clock.now = deleted + 15.0
    assert await waiting._attempt() and shelf.log == ["b"]


@dataclass
class Contested(Shelf):
    """Candidate a writes just before each write of another one that would succeed."""

    async def create(self, holder: str, duration: float) -> bool:
        return await super().create("a", duration) and holder == "a"

    async def replace(self, record: LeaseRecord, holder: str, duration: float) -> bool:
        return await super().replace(record, "a", duration) and holder == "a"


@pytest.mark.parametrize("before", [None, LeaseRecord("", 1.0, "0")])
async def test_a_candidate_that_was_second_leaves_a_deleted_lease_to_the_first(before: LeaseRecord | None) -> None:
    shelf, clock = Contested(before), Clock()
    second = candidate(shelf, "b", clock)
    assert not await second._attempt()
    shelf.record, shelf.log = None, []
    assert not await second._attempt() and shelf.log == []


async def test_release_never_raises_and_never_takes_anothers() -> None:
    shelf = Shelf(LeaseRecord("b", 15.0, "0"))
    election = candidate(shelf, "a", Clock())
    await election.release()
    shelf.broken = True
    await election.release()
    assert shelf.log == []
