"""What the gateway knows of one replica: its latest load document, and its own requests that the document may not show."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sluice_gateway.replicas.answer_record import AnswerRecord
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.load import Load
from sluice_gateway.routing import Replica

REFUSES: Final = "it refuses connections"
UNREACHABLE: Final = "it cannot be reached"
SILENT: Final = "it does not answer in time"
NO_HTTP: Final = "its answers are not HTTP"
UNASKED_LIMIT: Final = 4  # requests at a replica before it was asked for its load: all that wait would go to a new one


def fault_kind(fault: str) -> str:
    """The label of `contract.GATEWAY_FAULTS` for a fault."""
    kinds = {REFUSES: "refuses", UNREACHABLE: "unreachable", SILENT: "silent", NO_HTTP: "no_http"}
    return kinds.get(fault, "wrong_load")


@dataclass(slots=True)
class ReplicaState:
    """One replica. `fault` is why it is not used, a clause; None where it is."""

    backend: Backend
    load: Load | None = None
    is_asked: bool = False  # for its load, at least once; it may have none to give
    fault: str | None = None
    in_flight: int = 0  # requests of this gateway
    prompt_tokens: float = 0.0  # of those without a first byte
    uncached_tokens: float = 0.0  # of these, expected to be computed
    is_followed: bool = False  # its events of the KV cache arrive
    engine: str = ""  # the process that they came from; "" before the first
    foreign: int = 0  # requests at it beside this gateway's, at the last scrape
    unanswered: dict[int, Callable[[bool], None]] = field(default_factory=dict)  # by attempt: told if it is silent
    record: AnswerRecord = field(default_factory=AnswerRecord)
    _told: tuple[tuple[object, ...], Replica] | None = None  # the latest `replica()`, and what it was made of

    @property
    def ready(self) -> bool:
        """True if it can be sent requests."""
        return self.fault is None and (self.load is None or self.load.ready)

    @property
    def has_room(self) -> bool:
        """True if one more request can start there at once."""
        if self.load is None:
            return self.is_asked or self.in_flight < UNASKED_LIMIT
        return self.foreign + self.in_flight < max(1, self.load.limit)

    def loaded(self, load: Load | None) -> None:
        """A new document. What it counts beyond the requests of this gateway are those of others."""
        self.load = load
        self.foreign = 0 if load is None else max(0, load.running + load.waiting - self.in_flight)

    def serves(self, model: str | None) -> bool:
        """True unless it is known to serve another model: by its owner's word, or by its own."""
        if model is None:
            return True
        return self.backend.model in (None, model) and (self.load is None or self.load.model == model)

    def replica(self) -> Replica:
        """The replica for the routing policy, without the load that its answers contradict."""
        # Each request asks this of all replicas, and changes one of them.
        made_of = (
            self.load, self.record.is_contradicted, self.fault, self.in_flight, self.prompt_tokens, self.uncached_tokens,
        )  # fmt: skip
        if self._told is None or self._told[0] != made_of:
            self._told = made_of, self._made()
        return self._told[1]

    def _made(self) -> Replica:
        if self.load is not None and not self.record.is_contradicted:
            return self.published(self.load)
        return Replica(
            self.backend.name,
            self.ready,
            running=self.in_flight,
            limit=self.in_flight + 1,
            prefill_tokens=self.uncached_tokens,
            other_zone=self.backend.other_zone,
        )

    def published(self, load: Load) -> Replica:
        """The replica by its document.

        A document is up to one scrape old, and counts the requests of all gateways: requests of this gateway beyond
        its count were sent since. Of this gateway's prompts the uncached part is known, so it replaces the whole.
        """
        newer = max(0, self.in_flight - load.running - load.waiting)
        starting = min(newer, max(0, load.limit - load.running))
        prefill_tokens = self.uncached_tokens + max(0.0, load.prefill_tokens - self.prompt_tokens)
        return Replica(  # by position for speed: a request makes one per replica
            self.backend.name,
            self.ready,
            load.step_model,
            load.running + starting,
            load.waiting + newer - starting,
            load.limit,
            prefill_tokens,
            load.output_tokens,
            load.kv_held,
            load.kv_total,
            load.ttft_target,
            self.backend.other_zone,
        )
