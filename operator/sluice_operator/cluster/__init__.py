"""Access to the cluster: the client interface, and its implementations on Kubernetes and on local processes."""
