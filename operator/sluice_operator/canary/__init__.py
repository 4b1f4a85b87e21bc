"""The canary rollout of a changed pod template, as a pure state machine over what its pods measure.

    Progressing: step 1 → 2 → … → Promoting → Promoted
        └──────── errors, a missed SLO, or pods that do not start ────────► RolledBack

While it progresses, the canary is a second Deployment (as Flagger has it) and the stable one keeps its pod template. A
paused Deployment with surge pods cannot hold a share: its controller spreads each change of the count over all
ReplicaSets. A ReplicaSet of our own, as Argo Rollouts has it, would take rolling updates and their limits from Kubernetes.
"""

from sluice_operator.canary.advance import advance
from sluice_operator.canary.shares import Shares, shares
from sluice_operator.canary.values import CanaryPod, CanaryState, Counts, Trial

__all__ = ["CanaryPod", "CanaryState", "Counts", "Shares", "Trial", "advance", "shares"]
