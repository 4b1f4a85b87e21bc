"""Kubernetes' part of the loop, played by this machine: `sluice up` runs the same reconcile over processes.

`store` keeps objects as an API server would, `rollout` decides like the Deployment and ReplicaSet controllers, `pod`
lives one replica's life like a kubelet, `world` joins them behind the verbs that reconcile acts on.
"""

from sluice_operator.local.world import LocalError, LocalWorld, LocalWorldOptions

__all__ = ["LocalError", "LocalWorld", "LocalWorldOptions"]
