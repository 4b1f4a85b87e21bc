"""A local stand-in for the cluster, so that `sluice up` runs the same reconcile over processes.

`store` keeps objects like an API server, `deployment_controller` acts like the Deployment and ReplicaSet controllers,
`kubelet` runs one replica like a kubelet, and `client` joins them behind the `ClusterClient` interface.
"""

from sluice_operator.cluster.local.client import LocalCluster, LocalClusterOptions, LocalError

__all__ = ["LocalCluster", "LocalClusterOptions", "LocalError"]
