"""Decide: a pure function from what was seen to what should be, with its reasons.

`decide(spec, observed, memory, now) -> (Decision, memory)`. Plain data in, plain data out.
"""

from sluice_operator.decide.law import decide

__all__ = ["decide"]
