"""The view of a Prometheus pipeline on the pods: samples, increases and moving windows."""
