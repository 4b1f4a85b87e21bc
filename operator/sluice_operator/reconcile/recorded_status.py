"""What the status of a resource does not contain yet, and when its measurements were last written."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sluice_operator.autoscaler.values import Reason
from sluice_operator.status.build import Update
from sluice_operator.status.decisions import MAX_DECISIONS, record


@dataclass(frozen=True, slots=True)
class RecordedStatus:
    """The status as last written by this process."""

    # (timestamp, decision): carried out, and not yet written into the status
    unrecorded: tuple[tuple[str, Reason], ...] = ()
    measured_at: float | None = None  # monotonic seconds of the last status write with new measurements

    def decided(self, reasons: Iterable[Reason], timestamp: str) -> "RecordedStatus":
        """Return the state with new decisions. At most MAX_DECISIONS are kept: status writes may fail for days."""
        made = ((timestamp, reason) for reason in reasons)
        return replace(self, unrecorded=(*self.unrecorded, *made)[-MAX_DECISIONS:])

    def is_due(self, now: float, interval: float) -> bool:
        """True if the measurements were not written for `interval` seconds."""
        return self.measured_at is None or now - self.measured_at >= interval

    def update(self, timestamp: str, *, due: bool) -> Update:
        """Return the update that records the decisions, and the measurements if they are due."""
        records = tuple(record(reason, when) for when, reason in self.unrecorded)
        return Update(timestamp, records, measurements_due=due)

    def written(self, now: float, *, due: bool) -> "RecordedStatus":
        """Return the state after the update was written."""
        return RecordedStatus(measured_at=now if due else self.measured_at)
