"""The order in which the gateway tries replicas, and the resulting hit ratio of the engines' real prefix cache."""

from dataclasses import dataclass

import pytest

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.router import Router
from sluice_sim.cluster.scenario import MODES, Mode, Routing, Settings
from sluice_sim.policies.sluice import Sluice
from sluice_sim.results.summary import summarise
from sluice_sim.traces import Arrival
from tests.operator.autoscaler.fleet import MODEL, spec


@dataclass
class Replica:
    name: str
    requests: int = 0
    pending_prefill_tokens: int = 0


def names(router: Router, ready: list[Replica], arrival: Arrival) -> list[str]:
    return [one.name for one in router.order(ready, arrival)]


def test_round_robin_turns_and_offers_every_replica_once() -> None:
    router, ready = Router("round_robin"), [Replica("a"), Replica("b"), Replica("c")]
    one = Arrival(0, 10, 1)
    assert [names(router, ready, one) for _ in range(3)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert router.order([], one) == []


def test_least_loaded_counts_requests_in_flight() -> None:
    router = Router("least_loaded")
    ready = [Replica("a", 3), Replica("b", 1), Replica("c", 2)]
    assert names(router, ready, Arrival(0, 10, 1)) == ["b", "c", "a"]


def test_a_prompt_is_routed_to_its_prefix_unless_too_much_waits_there() -> None:
    router, one = Router("prefix_aware"), Arrival(0, 1536, 1, (1, 2, 3))
    ready = [Replica("a"), Replica("b"), Replica("c")]
    router.record_sent(Arrival(0, 1024, 1, (1, 2)), "b")
    router.record_sent(Arrival(0, 512, 1, (1,)), "c")
    assert names(router, ready, one)[:2] == ["b", "c"]
    ready[1].pending_prefill_tokens = 40_000
    assert names(router, ready, one)[0] == "c"
    router.forget("c")
    assert names(router, ready, one)[-1] == "b"
    ready[1].pending_prefill_tokens = 0
    assert names(router, ready, one)[0] == "b"


def test_only_uncached_prompt_tokens_count_as_pending_prefill() -> None:
    router, ready = Router("prefix_aware"), [Replica("a"), Replica("b")]
    router.record_sent(Arrival(0, 1024, 1, (1, 2)), "b")
    again = Arrival(0, 1124, 1, (1, 2))
    assert [router.load(again, one) for one in ready] == [1124, 100]
    assert router.load(Arrival(0, 1024, 1, (1, 2)), ready[1]) == 1  # a prompt's last token is always computed
    assert Router("least_loaded").load(again, ready[1]) == 1124  # knows nothing of prefixes


def test_a_longer_cached_prefix_outweighs_more_waiting_tokens_per_token() -> None:
    """Attention makes the tokens of a long prompt dearer: so many waiting tokens per spared one send a short prompt
    elsewhere and a long one not."""
    for blocks, first in ((2, "a"), (100, "b")):
        router, ready = Router("prefix_aware"), [Replica("a"), Replica("b")]
        prefix = tuple(range(blocks))
        router.record_sent(Arrival(0, blocks * 512, 1, prefix), "b")
        ready[1].pending_prefill_tokens = blocks * 512 * 25
        assert names(router, ready, Arrival(0, blocks * 512 + 1, 1, prefix))[0] == first


@pytest.mark.parametrize("mode", MODES)
def test_pending_prefill_tokens_return_to_zero_after_all_first_tokens(mode: Mode) -> None:
    """Loads are taken back as they were counted, whatever the cache or the router has learned since."""
    fleet = Fleet(
        spec(scaling={"minReplicas": 2}), Settings(MODEL, kv_tokens=16_000, mode=mode, routing="prefix_aware")
    )
    fleet.run(conversations(9, 4))
    assert [pod.pending_prefill_tokens for pod in fleet._pods] == [0, 0]


def conversations(count: int, turns: int) -> list[Arrival]:
    """Chats that come back with everything said before and 512 tokens more."""
    return [
        Arrival(20.0 * turn + 0.7 * chat, 512 * (turn + 1), 4, tuple(1000 * chat + k for k in range(turn + 1)))
        for turn in range(turns)
        for chat in range(count)
    ]


@pytest.mark.parametrize("mode", MODES)
def test_prefix_aware_routing_has_a_higher_hit_ratio_than_round_robin(mode: Mode) -> None:
    """7 chats over 2 replicas: an odd number, so that turns do not bring a chat back by accident."""
    arrivals = conversations(7, 4)
    ideal = 7 * 512 * (1 + 2 + 3) / sum(one.prompt for one in arrivals)
    found = {}
    policies: tuple[Routing, ...] = ("round_robin", "prefix_aware")
    for routing in policies:
        settings = Settings(MODEL, kv_tokens=64_000, mode=mode, routing=routing)
        found[routing] = summarise(Fleet(spec(scaling={"minReplicas": 2}), settings).run(arrivals)).hit_ratio
    assert found["prefix_aware"] == pytest.approx(ideal, rel=0.01)
    assert found["round_robin"] < 0.8 * ideal


def test_a_request_rejected_by_one_replica_is_offered_to_the_next() -> None:
    """Two replicas of one place and a short queue each; five requests at once: the router's favourite fills first."""
    small = spec(
        scaling={"mode": "External"}, replicas=2, admission={"concurrency": {"min": 1, "max": 1}, "mode": "Fixed"}
    )
    arrivals = [Arrival(6.0 + 0.001 * i, 100, 30, (1,)) for i in range(40)]
    run = Fleet(small, Settings(MODEL, kv_tokens=32_000, routing="prefix_aware")).run(arrivals)
    assert 0 < sum(record.refused for record in run.records) < 39
    assert all(record.refused or record.ended_at is not None for record in run.records)


class Watching(Sluice):
    """Our law, and what it was shown last."""

    shown: Observed

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
    ) -> tuple[Decision, AutoscalerState]:
        Watching.shown = observed
        return super().decide(spec, observed, memory, now)


@pytest.mark.parametrize("mode", MODES)
def test_a_request_counts_as_one_arrival_however_many_replicas_reject_it(mode: Mode) -> None:
    small = spec(
        scaling={"mode": "External"}, replicas=3, admission={"concurrency": {"min": 1, "max": 1}, "mode": "Fixed"}
    )
    arrivals = [Arrival(6.0 + 0.001 * i, 100, 30) for i in range(80)]
    run = Fleet(small, Settings(MODEL, kv_tokens=32_000, mode=mode), Watching()).run(arrivals)
    samples = [pod.sample for pod in Watching.shown.pods if pod.sample is not None]
    assert sum(one.rejected_total for one in samples) >= 3 * sum(one.refused for one in run.records) > 0
    assert sum(one.arrived_total for one in samples) == len(arrivals)
