"""A step that runs late cuts the end of its prompt chunk, because no request depends on those tokens yet.

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
    share: float  # the chunk's share of the step's predicted time, in (0, 1)
    tokens: int  # of the chunk
    indexed_blocks: tuple[int, ...]  # blocks that the chunk fills and that are in the prefix index already, in order


@dataclass(frozen=True, slots=True)
class Cut:
    """A chunk whose end was cut."""

    kept: int  # tokens that all layers computed, at least one
    equivalent_tokens: float  # full tokens of equal computation time, at least `kept`
