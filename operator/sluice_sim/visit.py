"""A request at an engine, exact or coarse."""

from dataclasses import dataclass, field

from sluice_sim.record import Record
from sluice_sim.traces import Arrival


@dataclass(slots=True)
class Visit:
    """A request at an engine: its number in the trace, what arrived, the life that is written down, and the replicas
    that it was offered to. `load`: prompt tokens that the gateway expects the replica that it is at to compute."""

    number: int
    arrival: Arrival
    record: Record
    tried: set[str] = field(default_factory=set)
    load: int = field(init=False)

    def __post_init__(self) -> None:
        """All of the prompt, until a gateway knows better."""
        self.load = self.arrival.prompt

    @property
    def offered_before(self) -> bool:
        """Whether another replica than the one that is asked now has had it: there it arrived."""
        return len(self.tried) > 1
