"""What the signals carry from one decision to the next."""

from dataclasses import dataclass, field

from sluice_operator.autoscaler.signals.cold_start import ColdStartState
from sluice_operator.autoscaler.signals.lengths import Lengths
from sluice_operator.autoscaler.signals.windows import WindowState


@dataclass(frozen=True, slots=True)
class SignalState:
    """The measurements and estimates behind all rules; bounded."""

    window: WindowState = field(default_factory=WindowState)
    lengths: Lengths = field(default_factory=Lengths)
    cold_starts: ColdStartState = field(default_factory=ColdStartState)

    def estimates(self) -> "SignalState":
        """The estimates that hold over a restart, without measurements."""
        return SignalState(lengths=self.lengths, cold_starts=ColdStartState(starts=self.cold_starts.starts))
