"""The accelerator budget of a namespace: how the deployments that share it divide replicas. Pure."""
