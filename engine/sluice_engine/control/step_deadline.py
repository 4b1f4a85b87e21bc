"""A step that runs late cuts the end of its prompt chunk, whose tokens no request depends on yet.

A fitted model sizes chunks for the seconds that an inter-token target leaves. Memory bandwidth varies by a third within
half a second on a shared machine, which no prediction covers: to meet a target in the slowest hundredth of the steps,
all chunks would have to be so small that a prompt takes half as long again. So the compiled decoder reads the clock
after each layer, and continues with as many of the chunk's tokens as the remaining layers have time for. A chunk is
causal: the kept part is a shorter chunk, and later steps compute the rest.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of a step, and the chunk whose last tokens may be cut to keep it."""

    seconds: float
    share: float  # of the step's predicted time, what the chunk takes: above 0, below 1
    tokens: int  # of the chunk
    indexed_blocks: tuple[int, ...]  # blocks that the chunk fills and that the prefix index holds already, in order


@dataclass(frozen=True, slots=True)
class Cut:
    """A chunk whose end was cut."""

    kept: int  # tokens that all layers computed, at least one
    worth: float  # tokens whose whole computation would have taken as much; not fewer than `kept`
