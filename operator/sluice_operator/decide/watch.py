"""What is believed and remembered of a fleet, before anything is judged."""

from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import coldstart
from sluice_operator.decide.evenness import weigh
from sluice_operator.decide.physics import targets
from sluice_operator.decide.trust import Fresh, fresh
from sluice_operator.decide.values import Memory, Observed
from sluice_operator.decide.windows import absorb


def watch(spec: LLMDeploymentSpec, observed: Observed, memory: Memory, now: float) -> tuple[Fresh, Memory]:
    """What can be believed of this look at the fleet, and the memory with it folded in."""
    seen = fresh(observed, memory.scrape_gap, now)
    memory = coldstart.learn(absorb(_begin(memory, seen, now), seen, now, targets(spec).ttft), observed)
    return seen, weigh(memory, seen, now)


def _begin(memory: Memory, seen: Fresh, now: float) -> Memory:
    """Note when we began, and when the fleet last changed."""
    if memory.started_at is None or now < memory.started_at:
        # A predecessor's experience is kept, its evidence is not: what was measured is measured anew.
        experience = Memory(lengths=memory.lengths, before=memory.before, starts=memory.starts, trust=memory.trust)
        return replace(experience, started_at=now, ready=len(seen.ready), settled_at=now)
    if len(seen.ready) != memory.ready:
        return replace(memory, ready=len(seen.ready), settled_at=now)
    return memory
