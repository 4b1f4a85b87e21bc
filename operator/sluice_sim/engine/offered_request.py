"""A request as the gateway offers it to an engine, exact or coarse."""

from dataclasses import dataclass, field

from sluice_sim.cluster.request import RequestRecord
from sluice_sim.traces import Arrival


@dataclass(slots=True)
class OfferedRequest:
    """A request of the trace on its way to an engine.

    `number` is its index in the trace, `record` its outcome and `offered_to` the names of the replicas that it was
    offered to. `prefill_tokens`: prompt tokens that the gateway expects its current replica to compute."""

    number: int
    arrival: Arrival
    record: RequestRecord
    offered_to: set[str] = field(default_factory=set)
    prefill_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        """`prefill_tokens` is the whole prompt until the router replaces it by an estimate."""
        self.prefill_tokens = self.arrival.prompt

    @property
    def offered_before(self) -> bool:
        """True if the request was offered to another replica before. Only the first replica counts its arrival."""
        return len(self.offered_to) > 1
