"""The autoscaler: a pure function from observations to a decision and its reasons.

`decide(spec, observed, state, now) -> (Decision, state)`. Inputs and outputs are plain data.
"""

from sluice_operator.autoscaler.decide import decide

__all__ = ["decide"]
