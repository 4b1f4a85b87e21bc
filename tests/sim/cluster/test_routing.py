"""The gateway's router over simulated replicas, and the resulting hit ratio of the engines' real prefix cache."""

import pytest

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import MODES, Mode, Routing, Settings
from sluice_sim.policies.sluice import Sluice
from sluice_sim.results.summary import summarise
from sluice_sim.traces import Arrival
from tests.operator.autoscaler.fleet import MODEL, spec


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
