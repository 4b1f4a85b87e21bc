"""The front door: one URL in front of all replicas."""
