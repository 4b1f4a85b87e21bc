"""How far the model is believed: less while reality is worse than it said, again in full once reality agrees.

The reactive guard acts at once on what is measured; this is its memory. Whatever made the model wrong (a profile off
by a fifth, a neighbour on the machine, lengths that changed) is there in the next minute as well, and without it the
law would take back each time what the guard has just added.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.decide.values import Memory

LEAST: Final = 0.5  # half of what the model says one replica holds: then the guard, not the model, rules
FALL: Final = 0.9  # per period of missed promises: seven periods from full trust to half
PERIOD: Final = 15.0  # seconds between two steps: half a window, so that each has new evidence
RISE: Final = 0.02  # per period of promises kept under load: half an hour to forget a wrong by a fifth


def follow(memory: Memory, missed: bool, kept: bool, now: float) -> Memory:
    """One step where one is due: down where promises are missed under load, up where they are kept."""
    if not (missed or kept) or (memory.trust_at <= now < memory.trust_at + PERIOD):
        return memory
    trust = max(LEAST, memory.trust * FALL) if missed else min(1.0, memory.trust + RISE)
    return memory if trust == memory.trust else replace(memory, trust=trust, trust_at=now)
