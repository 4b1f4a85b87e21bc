"""The orders in which prompts are served, one module each behind one interface (`base.Policy`)."""

from typing import Final

from sluice_engine.scheduler.policies.base import GRAIN, Policy, PrefillEstimate
from sluice_engine.scheduler.policies.edf import EDF
from sluice_engine.scheduler.policies.fair import FAIR
from sluice_engine.scheduler.policies.fcfs import FCFS
from sluice_engine.scheduler.policies.priority import PRIORITY, aged_arrival
from sluice_engine.scheduler.policies.srpf import SRPF

POLICIES: Final[dict[str, Policy]] = {policy.name: policy for policy in (FCFS, PRIORITY, SRPF, EDF, FAIR)}

__all__ = ["GRAIN", "POLICIES", "Policy", "PrefillEstimate", "aged_arrival"]
