"""What the gateway's router reads, taken from simulated pods and the requests of a trace."""

from collections.abc import Mapping
from typing import Final

from sluice_gateway.routing import PolicyName, Prompt, Replica
from sluice_sim.cluster.replica import Pod
from sluice_sim.cluster.scenario import Routing
from sluice_sim.traces.arrival import BLOCK_TOKENS, Arrival

POLICY: Final[Mapping[Routing, PolicyName]] = {
    "round_robin": "RoundRobin",
    "least_loaded": "LeastLoaded",
    "prefix_aware": "PrefixAware",
}


def prompt_of(arrival: Arrival) -> Prompt:
    """The request's prompt. The trace's block ids are chained, as the gateway's hashes are."""
    return Prompt(float(arrival.prompt), arrival.blocks, BLOCK_TOKENS)


def replica_of(pod: Pod, *, with_load: bool) -> Replica:
    """A ready pod as its /load document would describe it at this instant; only its name without the load."""
    engine = pod.engine
    if not with_load or engine is None:
        return Replica(pod.name)
    state, counters = engine.state(), engine.counters
    return Replica(
        name=pod.name,
        model=state.model,
        running=state.running,
        waiting=state.waiting,
        limit=state.limits.concurrency,
        prefill_tokens=float(pod.pending_prefill_tokens),
        output_tokens=counters.generated / max(1, counters.finished),
        kv_held=float(state.held * state.block_size),
        kv_total=float(state.blocks * state.block_size),
        ttft_target=state.limits.current.ttft_target,
    )
