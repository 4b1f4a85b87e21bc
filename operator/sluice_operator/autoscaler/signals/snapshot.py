"""The snapshot: what every rule of one decision reads."""

import math
from dataclasses import dataclass

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.freshness import FleetMetrics
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.signals.windows import WindowSums, window_sums
from sluice_operator.autoscaler.targets import targets
from sluice_operator.autoscaler.values import Observed
from sluice_perfmodel.slo_limits import Targets


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The spec, the fleet and its signals at one moment. Rules read it and change nothing in it."""

    spec: LLMDeploymentSpec
    observed: Observed
    fleet: FleetMetrics
    signals: SignalState
    now: float  # monotonic seconds
    targets: Targets
    window: WindowSums  # the last half minute

    @property
    def is_idle(self) -> bool:
        """Whether no measured replica has a running or waiting request and none arrived in the window."""
        return not self.fleet.in_flight and self.window.count("arrived_total") == 0

    @property
    def has_overdue_first_tokens(self) -> bool:
        """Whether more of the window's first tokens came after the last bucket than the target allows to be late."""
        overdue = self.window.overdue
        return overdue > 0.0 and overdue > (1.0 - self.targets.attainment) * self.window.ttft[-1]

    @property
    def kv_occupancy(self) -> float | None:
        """Share of the fleet's KV blocks that running requests hold, 0..1; None without fresh samples.

        It is the mean of the window by the engines' own integral, which includes changes between scrapes. The gauges are
        used where the integral has no data yet.
        """
        measured = self.fleet.measured
        if not measured:
            return None
        if self.window.block_seconds > 0:
            return min(1.0, self.window.count("kv_block_seconds_total") / self.window.block_seconds)
        return min(1.0, math.fsum(sample.kv_occupancy for _, sample in measured) / len(measured))


def take_snapshot(
    spec: LLMDeploymentSpec, observed: Observed, fleet: FleetMetrics, signals: SignalState, now: float
) -> Snapshot:
    """The snapshot at `now`, monotonic seconds."""
    return Snapshot(
        spec=spec,
        observed=observed,
        fleet=fleet,
        signals=signals,
        now=now,
        targets=targets(spec),
        window=window_sums(signals.window, now, LAW.window_seconds),
    )
