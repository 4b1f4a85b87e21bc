"""A request as it is offered to an engine, exact or coarse."""

from dataclasses import dataclass, field

from sluice_sim.cluster.request import Record
from sluice_sim.traces import Arrival


@dataclass(slots=True)
class Visit:
    """A request at an engine.

    `number` is its index in the trace, `record` its outcome and `tried` the names of the replicas that it was offered
    to. `load` is the number of prompt tokens that the gateway expects its current replica to compute."""

    number: int
    arrival: Arrival
    record: Record
    tried: set[str] = field(default_factory=set)
    load: int = field(init=False)

    def __post_init__(self) -> None:
        """The load is the whole prompt until the router replaces it by an estimate."""
        self.load = self.arrival.prompt

    @property
    def offered_before(self) -> bool:
        """True if the request was offered to another replica before. Only the first replica counts its arrival."""
        return len(self.tried) > 1
