"""Track T3 by the gateway's own routing code: the fleet's hits beside those of an endless cache, and of an oracle that sees
every pool instead of what the gateway knows of it; and by two gateways in turn, which tell each other twice a second what they
have sent, or do not.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from sluice_gateway.peers.documents import PERIOD_SECONDS
from sluice_gateway.routing import Prompt, Replica, Router
from sluice_gateway.routing.cache_view import CacheView
from sluice_sim.benchmark.run.job import Job, law_of, simulate
from sluice_sim.benchmark.run.requests import requests
from sluice_sim.benchmark.run.tasks import endless_hit_ratio
from sluice_sim.benchmark.track import Track, read_track
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.collector import uncollected
from sluice_sim.engine.coarse.engine import CoarseEngine
from sluice_sim.results.summary import summarise
from tests.bench.report.row import Report, Row, at_least, at_most

LEAST: Final = 0.95
MOST_POINTS: Final = 2.0
_JOB: Final = Job(track="T3", window="test", law="sluice")


class _EveryPool(CacheView):
    """What each pool holds at this instant."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    def cached_tokens(self, name: str, prompt: Prompt) -> float:
        """Leading tokens of the prompt in the replica's pool."""
        (engine,) = (pod.engine for pod in self._fleet._pods if pod.name == name)
        if not isinstance(engine, CoarseEngine):
            raise TypeError("the track is simulated in exact mode, whose pools are not read here")
        return float(engine._cache.hit(prompt.steps, round(prompt.tokens)))


class _InTurn:
    """Two gateways as one router: each request goes through the other one."""

    reads_load = True

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        """Each knows of a prompt of the other one so many seconds after it was sent."""
        self._fleet = fleet
        self._seconds = seconds
        self._routers = [Router("PrefixAware"), Router("PrefixAware")]
        self._told = deque[tuple[float, Router, Replica, Prompt]]()
        self.caches = self

    @property
    def _now(self) -> float:
        """When the newest request arrived."""
        return self._fleet.records[-1].arrived_at

    def forget(self, name: str) -> None:
        """The replica is gone."""
        for each in self._routers:
            each.caches.forget(name)

    def order(self, replicas: Sequence[Replica], prompt: Prompt) -> list[Replica]:
        """As the gateway whose turn it is."""
        while self._told and self._told[0][0] <= self._now:
            _, router, replica, told = self._told.popleft()
            router.sent(replica, told)
        self._routers.reverse()
        return self._routers[0].order(replicas, prompt)

    def uncached_tokens(self, name: str, prompt: Prompt) -> float:
        """As the gateway that has ordered last."""
        return self._routers[0].uncached_tokens(name, prompt)

    def sent(self, replica: Replica, prompt: Prompt) -> None:
        """The gateway that has ordered last has sent it."""
        self._routers[0].sent(replica, prompt)
        self._told.append((self._now + self._seconds, self._routers[1], replica, prompt))


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of this part."""
    say("Mooncake's conversations in the simulator (T3)")
    track = read_track(_JOB.track)
    found = simulate(track, _JOB)
    share = found.hit_ratio / endless_hit_ratio(track, _JOB.window)
    name = f"T3: hits of an endless cache's (attainment {found.attainment:.2%}, {found.gpu_hours:.1f} GPU-hours)"
    say("the same by an oracle that sees every pool")
    oracle = _hit_ratio(track, lambda fleet: Router(fleet._router.policy, _EveryPool(fleet)))
    say("the same by two gateways in turn, which tell each other what they have sent, or do not")
    alone = _hit_ratio(track, lambda fleet: _InTurn(fleet, inf))
    ours = _hit_ratio(track, lambda fleet: _InTurn(fleet, PERIOD_SECONDS))
    two = (
        f"T3, two gateways: points of the hit ratio below the oracle ({ours:.2%}; where they tell nothing {alone:.2%})"
    )
    points = f"T3: points of the hit ratio below an oracle that sees every pool ({found.hit_ratio:.2%}, {oracle:.2%})"
    return Report(
        [
            at_least(name, share, LEAST),
            at_most(points, 100.0 * (oracle - found.hit_ratio), MOST_POINTS),
            at_most(two, 100.0 * (oracle - ours), MOST_POINTS),
            Row("T3, two gateways: points gained by what they tell each other", f"{100.0 * (ours - alone):.3g}"),
        ]
    )


def _hit_ratio(track: Track, router: Callable[[Fleet], Any]) -> float:
    with uncollected():
        fleet = Fleet(track.spec(), track.settings(track.begin), law_of(track, _JOB))
        fleet._router = router(fleet)
        return summarise(fleet.run(requests(track, _JOB.window)), track.gpus).hit_ratio
