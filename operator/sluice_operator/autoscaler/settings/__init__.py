"""Every constant of the control law, in one frozen object: `LAW`.

Each field states its unit, its source or the measurement behind it, and what happens when it is halved and doubled.
"Not measured" means that no experiment varied it. Tracks T1 to T5 and the measurements are in `operator/LOG.md`; the
constants of the performance model, which engines share, are in `sluice_perfmodel`. What a user may choose is in the
spec of the resource and not here.
"""

from dataclasses import dataclass, field
from typing import Final

from sluice_operator.autoscaler.settings.admission import AdmissionSettings
from sluice_operator.autoscaler.settings.replicas import ReplicaSettings
from sluice_operator.autoscaler.settings.signals import SignalSettings

__all__ = ["LAW", "AdmissionSettings", "LawSettings", "ReplicaSettings", "SignalSettings"]


@dataclass(frozen=True, slots=True)
class LawSettings:
    """The constants of the control law, by the package whose rules read them."""

    signals: SignalSettings = field(default_factory=SignalSettings)
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)


LAW: Final = LawSettings()
