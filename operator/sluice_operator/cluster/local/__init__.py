"""A local stand-in for the cluster, so that `sluice up` runs the same reconcile over processes.

`store` keeps objects like an API server, `deployment_controller` decides like the Deployment and ReplicaSet controllers,
`controllers` acts on that, `kubelet` runs one replica and `mounts` writes its files like a kubelet, and `client` joins them
behind the `ClusterClient` interface.
"""

from sluice_operator.cluster.local.client import LocalCluster
from sluice_operator.cluster.local.launch import LocalError
from sluice_operator.cluster.local.options import LocalClusterOptions

__all__ = ["LocalCluster", "LocalClusterOptions", "LocalError"]
