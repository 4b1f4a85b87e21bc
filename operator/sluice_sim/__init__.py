"""Discrete-event simulator: the real scheduler and the real decide() run against traces in virtual time."""
