"""The replicas dial: the history, the rules on it, the need, stabilization and scale-in order."""
