"""A step that notices that it runs late gives up the end of its chunk, which nobody waits for yet.

Chunks are planned into the seconds that an inter-token target leaves, by a fitted model. How fast memory is wanders while
a step runs, by a third within half a second on a shared machine, and no prediction knows that: to keep a target in the
slowest hundredth of the steps, all would have to aim so low that a prompt takes half as long again. So the compiled
decoder looks at the clock after each layer, and goes on with as many of the chunk's tokens as the layers left have time
for. A chunk is causal: what is kept of it is a shorter chunk, and the steps that follow compute the rest.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """What a step may take, and which of its tokens may be given up for that: the last ones, of one chunk."""

    seconds: float
    share: float  # of the step's predicted time, what the chunk takes: above 0, below 1
    tokens: int  # of the chunk
    promised: tuple[int, ...]  # blocks that the chunk fills and that the prefix index names already, in order


@dataclass(frozen=True, slots=True)
class Cut:
    """What became of a chunk whose end was given up."""

    kept: int  # tokens that all layers computed, at least one
    worth: float  # tokens whose whole computation would have taken as much; not fewer than `kept`
