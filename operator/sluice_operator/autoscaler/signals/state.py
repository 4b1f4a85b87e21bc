"""What the signals carry from one decision to the next."""

from dataclasses import dataclass, field

from sluice_operator.autoscaler.signals.arrival_history import ArrivalState
from sluice_operator.autoscaler.signals.cold_start import ColdStartState
from sluice_operator.autoscaler.signals.error_budget import ErrorTally
from sluice_operator.autoscaler.signals.lengths import Lengths
from sluice_operator.autoscaler.signals.load_balance import LoadBalanceState
from sluice_operator.autoscaler.signals.windows import WindowState


@dataclass(frozen=True, slots=True)
class ReadyState:
    """The number of ready pods, and since when it is that number: older measurements are of another fleet."""

    count: int | None = None  # None: no call yet
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SignalState:
    """The measurements and estimates behind all rules; bounded."""

    window: WindowState = field(default_factory=WindowState)
    lengths: Lengths = field(default_factory=Lengths)
    errors: ErrorTally = field(default_factory=ErrorTally)
    arrivals: ArrivalState = field(default_factory=ArrivalState)
    cold_starts: ColdStartState = field(default_factory=ColdStartState)
    balance: LoadBalanceState = field(default_factory=LoadBalanceState)
    ready: ReadyState = field(default_factory=ReadyState)

    def estimates(self) -> "SignalState":
        """The estimates that hold over a restart, without measurements."""
        return SignalState(
            lengths=self.lengths,
            arrivals=ArrivalState(prior=self.arrivals.prior),
            cold_starts=ColdStartState(starts=self.cold_starts.starts),
        )
