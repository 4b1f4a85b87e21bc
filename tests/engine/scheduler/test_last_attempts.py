"""Clients that give up after their second retry: what an engine with too few places refuses, and whom."""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.load_shedding.exemption import BURST, SHARE
from sluice_perfmodel.step_time import StepTimeModel

# The tiny model on two cores: sixteen streams take 94 ms per step.
MODEL = StepTimeModel(base=0.03, prefill_token=2e-4, sequence=4e-3, kv_token=1e-7, steps=1000)
TTFT, ITL = 2.0, 0.1
ATTEMPTS = 3  # of the official clients


def _scheduler(places: int = 16, queue: int = 64) -> Scheduler:
    config = SchedulerConfig(num_blocks=4096, max_num_seqs=places, max_model_length=8192, prefix_cache=False)
    bounds = Limits(concurrency_min=places, concurrency_max=places, max_queue=queue, ttft_target=TTFT, itl_target=ITL)
    return Scheduler(config, LimitController(bounds))


@dataclass
class _Sent:
    prompt: int  # tokens
    at: float  # seconds, of the first attempt
    attempt: int = 1


@dataclass
class _Clients:
    """What clients send to one engine, in virtual time; each request has three attempts, as with the official clients."""

    names_last_attempt: bool
    seed: int
    scheduler: Scheduler = field(default_factory=_scheduler)
    now: float = 0.0
    failed: int = 0
    served: int = 0
    in_time: int = 0

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._due: list[tuple[float, int, str]] = []  # when, serial, name
        self._sent: dict[str, _Sent] = {}
        self._serials = count()

    def ask(self, at: float) -> None:
        """A new request at `at` seconds."""
        name = f"r{next(self._serials)}"
        self._sent[name] = _Sent(self._dice.choice([10, 20, 40, 400]), at)
        heapq.heappush(self._due, (at, next(self._serials), name))

    def run(self) -> Iterator[str]:
        """Step until nothing is due; the names of the requests that end."""
        while self._due or self.scheduler.requests:
            yield from self._arrivals()
            plan = self.scheduler.plan(self.now, MODEL)
            if plan is None:
                self.now = self._due[0][0]
                continue
            self.now += MODEL.predict(plan.work)
            for outcome in self.scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), self.now):
                if outcome.first:
                    self.in_time += self.now - self._sent[outcome.request_id].at <= TTFT
                if outcome.finish is not None:
                    self.served += 1
                    yield outcome.request_id

    def _arrivals(self) -> Iterator[str]:
        while self._due and self._due[0][0] <= self.now:
            at, _, name = heapq.heappop(self._due)
            one = self._sent[name]
            last = self.names_last_attempt and one.attempt == ATTEMPTS
            refused = self.scheduler.submit(Request(name, [1] * one.prompt, 33, at, last_attempt=last))
            if refused is None:
                continue
            gone = self._sent[refused.request_id]
            if gone.attempt == ATTEMPTS:
                self.failed += 1
                yield refused.request_id
            else:
                gone.attempt += 1
                heapq.heappush(self._due, (self.now + refused.retry_after, next(self._serials), refused.request_id))


def _closed_loop(clients: _Clients, users: int, requests: int) -> _Clients:
    for user in range(users):
        clients.ask(0.01 * user)
    for _ in clients.run():
        requests -= 1
        if requests >= users:
            clients.ask(clients.now)
    return clients


def test_40_users_of_16_places_see_no_error_because_their_last_attempt_is_served() -> None:
    served = [_closed_loop(_Clients(True, seed), 40, 1000) for seed in range(3)]
    assert [each.failed for each in served] == [0, 0, 0]
    assert all(each.served == 1000 for each in served)
    unnamed = [_closed_loop(_Clients(False, seed), 40, 1000) for seed in range(3)]
    assert sum(each.failed for each in unnamed) > 0, "this load does not need the rule"
    assert sum(each.in_time for each in served) >= 0.97 * sum(each.in_time for each in unnamed)


def test_in_an_overload_that_lasts_last_attempts_cost_few_others_their_target() -> None:
    """Twice what the engine serves, in an open loop."""

    def share_in_time(names_last_attempt: bool) -> float:
        clients, dice, at = _Clients(names_last_attempt, seed=1), random.Random(2), 0.0
        while at < 200.0:
            at += dice.expovariate(10.0)
            clients.ask(at)
        for _ in clients.run():
            pass
        return clients.in_time / (clients.served + clients.failed)

    assert share_in_time(True) >= 0.8 * share_in_time(False)


def test_overdue_last_attempts_are_exempt_in_their_order_as_far_as_others_have_started() -> None:
    engine = _scheduler(places=1)
    engine.submit(Request("runs", [1] * 10, 1000, 0.0))
    plan = engine.plan(0.0, MODEL)
    assert plan is not None
    engine.settle(plan, [7], 0.05)
    late = [Request(f"late{number}", [1] * 2000, 10, 0.05, last_attempt=number != 2) for number in range(4)]
    for one in late:
        engine.submit(one)
        engine.waiting.demote(one)
    engine.state.exemptions = 3.0
    assert engine.submit(Request("newcomer", [1] * 10, 10, 500.0)) is not None, "the third is evicted"
    assert [one.exempt for one in late] == [True, True, False, False]
    assert [one.request_id for one in engine.waiting][:2] == ["late0", "late1"]
    assert engine.state.exemptions == 1.0
    engine.check()


def test_exemptions_are_earned_by_starts_and_are_bounded() -> None:
    engine = _scheduler(places=200, queue=1)
    for number in range(200):
        engine.submit(Request(str(number), [1] * 10, 2, 0.0))
        engine.plan(0.0, MODEL)
        assert engine.state.exemptions == min(BURST, SHARE * len(engine.running))
    assert engine.state.exemptions == BURST
