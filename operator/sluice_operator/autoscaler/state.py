"""The state that decide() carries from one call to the next: one frozen part per group of rules.

Each part is defined beside the rules that read it, and they take only that part.
"""

from dataclasses import dataclass, field, replace

from sluice_operator.autoscaler.admission.reporting import AdmissionState
from sluice_operator.autoscaler.admission.shortage import ShortageState
from sluice_operator.autoscaler.replicas.dial import ReplicaState
from sluice_operator.autoscaler.replicas.history import History
from sluice_operator.autoscaler.replicas.stabilization import StabilizationState
from sluice_operator.autoscaler.signals.state import SignalState


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """The whole state; bounded. Opaque to all code outside the autoscaler."""

    signals: SignalState = field(default_factory=SignalState)
    history: History = field(default_factory=History)
    stabilization: StabilizationState = field(default_factory=StabilizationState)
    shortage: ShortageState = field(default_factory=ShortageState)
    replicas: ReplicaState = field(default_factory=ReplicaState)
    admission: AdmissionState = field(default_factory=AdmissionState)

    def begun(self, now: float) -> "AutoscalerState":
        """The state at the first call, or after a clock that went back: estimates without measurements."""
        since = self.stabilization.observed_since
        if since is not None and now >= since:
            return self
        return AutoscalerState(
            signals=self.signals.estimates(),
            history=self.history.without_measurements(now),
            stabilization=StabilizationState(observed_since=now),
        )

    def after_unplanned_change(self, scaled_in_at: float | None) -> "AutoscalerState":
        """The state after a change of the count that this state does not know; it is reported once.

        `scaled_in_at` is the time of a scale-in by this operator whose response was lost: it starts the cooldown.
        """
        stabilization = self.stabilization
        if scaled_in_at is not None:
            stabilization = replace(stabilization, scaled_in_at=scaled_in_at)
        replicas = replace(self.replicas, last_set=None, reported=None)
        return replace(self, stabilization=stabilization, replicas=replicas)
