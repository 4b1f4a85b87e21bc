"""The lease of a download, with injected clocks that differ: one owner at a time, and a dead one is replaced."""

import errno
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice_engine.sources.lease import RENEWALS, Lease, LeaseLost

EXPIRY = 12.0


class Clock:
    """A clock that tests advance."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def two(folder: Path) -> tuple[Lease, Clock, Lease, Clock]:
    first, second = Clock(1000.0), Clock(-5.0)
    return Lease(folder / "m.lease", EXPIRY, first), first, Lease(folder / "m.lease", EXPIRY, second), second


def test_a_waiter_takes_over_only_from_an_owner_that_is_silent_for_the_whole_expiry(tmp_path: Path) -> None:
    owner, clock, waiter, other = two(tmp_path)
    assert owner.try_acquire() and not waiter.try_acquire()
    for _ in range(10):
        clock.now += EXPIRY / RENEWALS
        other.now += EXPIRY / RENEWALS
        owner.renew()
        assert not waiter.try_acquire(), "an owner that renews is alive"
    other.now += EXPIRY - 0.1
    assert not waiter.try_acquire()
    other.now += 0.2
    assert waiter.try_acquire()
    clock.now += EXPIRY
    with pytest.raises(LeaseLost):
        owner.renew()
    owner.release()  # of a lost lease: it must not free the new owner's
    third = Lease(tmp_path / "m.lease", EXPIRY, Clock(0.0))
    assert not third.try_acquire()
    waiter.release()
    assert third.try_acquire()


def test_a_released_lease_is_free_at_once(tmp_path: Path) -> None:
    owner, _, waiter, _ = two(tmp_path)
    assert owner.try_acquire() and not waiter.try_acquire()
    owner.release()
    assert waiter.try_acquire() and not owner.try_acquire()


def test_a_lease_that_there_is_no_room_for_is_free_at_once_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Lease) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner, _, waiter, _ = two(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "_content", full)
        with pytest.raises(OSError, match="No space left"):
            owner.try_acquire()
    assert waiter.try_acquire()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["acquire", "renew", "release", "wait", "crash"])), max_size=40
    )
)
def test_at_most_one_process_believes_in_a_lease_that_it_has_just_renewed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    path = tmp_path_factory.mktemp("lease") / "m.lease"
    clocks = [Clock(100.0 * n) for n in range(3)]
    leases = [Lease(path, EXPIRY, clock) for clock in clocks]
    holds = [False] * 3
    for who, what in steps:
        if what == "acquire" and not holds[who]:
            holds[who] = leases[who].try_acquire()
        elif what == "renew" and holds[who]:
            try:
                clocks[who].now += EXPIRY / RENEWALS
                leases[who].renew()
            except LeaseLost:
                holds[who] = False
        elif what == "release":
            leases[who].release()
            holds[who] = False
        elif what == "wait":
            for clock in clocks:
                clock.now += EXPIRY / 2
        elif what == "crash":  # it forgets what it held
            leases[who], holds[who] = Lease(path, EXPIRY, clocks[who]), False
        believers = [n for n in range(3) if holds[n] and _is_owner(leases[n], clocks[n])]
        assert len(believers) <= 1
        holds = [holds[n] and n in believers for n in range(3)]


def _is_owner(lease: Lease, clock: Clock) -> bool:
    clock.now += EXPIRY / RENEWALS
    try:
        lease.renew()
    except LeaseLost:
        return False
    return True
