"""The state of one resource between two passes; each part is defined beside the code that uses it.

Correctness does not depend on this state: a new process reads back what it needs from the cluster. It saves requests,
keeps windows of samples, and prevents duplicate Events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.canary import CanaryState
from sluice_operator.reconcile.children.apply import AppliedChildren
from sluice_operator.reconcile.children.pod_monitor import AppliedMonitor
from sluice_operator.reconcile.crash_replacement import CrashReplacement
from sluice_operator.reconcile.external_writer import ExternalWriter
from sluice_operator.reconcile.limits import SentLimits
from sluice_operator.reconcile.observation_state import ObservationState
from sluice_operator.reconcile.recorded_status import RecordedStatus
from sluice_operator.reconcile.saved_estimates import SavedEstimates
from sluice_operator.status.events import SentEvents


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One resource's state. Times are monotonic seconds."""

    uid: str  # a resource recreated under the same name starts with a new state
    autoscaler: AutoscalerState = field(default_factory=AutoscalerState)
    observation: ObservationState = field(default_factory=ObservationState)
    children: AppliedChildren = field(default_factory=AppliedChildren)
    status: RecordedStatus = field(default_factory=RecordedStatus)
    events: SentEvents = field(default_factory=SentEvents)
    crash_replacement: CrashReplacement = field(default_factory=CrashReplacement)
    saved: SavedEstimates = field(default_factory=SavedEstimates)
    monitor: AppliedMonitor = field(default_factory=AppliedMonitor)
    limits: Mapping[str, SentLimits] = field(default_factory=dict)  # by pod
    canary: CanaryState = field(default_factory=CanaryState)
    external_writer: ExternalWriter = field(default_factory=ExternalWriter)
