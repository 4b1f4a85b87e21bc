"""Discrete-event simulator: the real scheduler and the real decide() against traces, in virtual time."""
