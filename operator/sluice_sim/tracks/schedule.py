"""Laws that do not look: a fixed count, and a schedule that somebody wrote who knew what would come.

Both admit as our own law does, by its own slow loop, so that what another law gains over them is not admission. They do
not run decide(): what is found for them stays true when the replicas dial changes, and looking for a schedule takes an
hour.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sluice_law.capacity import most_at_once
from sluice_law.limit import MARGIN
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.admission import bounds, note_missing
from sluice_operator.decide.physics import physics, promises
from sluice_operator.decide.values import Decision, Memory, Observed
from sluice_operator.decide.victim import victims
from sluice_operator.decide.watch import watch
from sluice_sim.laws.law import Knob

Counts = tuple[int, ...]
PIECE: Final = 300.0  # seconds of a schedule's piece
COUNT: Final = Knob("replicas", 1.0, (1.0,), "replicas")


@dataclass(frozen=True, slots=True)
class Static:
    """Always `setting` replicas."""

    setting: float
    name: str = "static"
    knob: Knob = COUNT
    admits: bool = True

    def initial(self) -> Memory:
        """Nothing seen."""
        return Memory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: Memory, now: float
    ) -> tuple[Decision, Memory]:
        """The count, and admission."""
        return held(spec, observed, memory, now, round(self.setting))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`counts[k]` replicas are ready in [k·PIECE, (k+1)·PIECE): launched `lead` seconds early, drained at the end."""

    counts: Counts
    lead: float
    setting: float = 1.0
    name: str = "clairvoyant"
    knob: Knob = COUNT
    admits: bool = True

    def initial(self) -> Memory:
        """Nothing seen."""
        return Memory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: Memory, now: float
    ) -> tuple[Decision, Memory]:
        """What serves now, or more if more must be ready when a replica launched now is."""
        return held(spec, observed, memory, now, max(self.at(now), self.at(now + self.lead)))

    def at(self, now: float) -> int:
        """The count that the schedule wants to be ready."""
        return self.counts[min(len(self.counts) - 1, int(now / PIECE))]


def held(
    spec: LLMDeploymentSpec, observed: Observed, memory: Memory, now: float, count: int
) -> tuple[Decision, Memory]:
    """So many replicas, the emptiest drained first, and the slow loop of admission over them."""
    seen, memory = watch(spec, observed, memory, now)
    memory = note_missing(memory, seen, count, now)
    known = physics(spec, seen, memory)
    places = None
    if known is not None:
        places = most_at_once(known.replica, known.work, promises(spec, known.work), MARGIN)
    admitted = bounds(spec, seen, memory, places, count, now)
    leaving = victims(observed, memory, (observed.replicas or 0) - count)
    return Decision(replicas=count, desired=count, bounds=admitted, victims=leaving), memory


def last_piece(seconds: float) -> float:
    """Seconds of a window's last piece, which may be cut short."""
    return seconds - PIECE * max(0, math.ceil(seconds / PIECE) - 1)


def cost(counts: Sequence[int], lead: float, last: float = PIECE) -> float:
    """Replica-seconds of a schedule whose last piece takes `last` seconds, each start's loading included."""
    starts = sum(max(0, b - a) for a, b in itertools.pairwise(counts))
    return PIECE * sum(counts[:-1]) + last * counts[-1] + lead * starts


def saving(counts: Sequence[int], piece: int, lead: float, last: float = PIECE) -> float:
    """Replica-seconds that one replica less in the piece saves: the piece itself, and a start more or less."""
    return cost(counts, lead, last) - cost(without(counts, (piece,)), lead, last)


def without(counts: Sequence[int], pieces: Sequence[int]) -> Counts:
    """The schedule with one replica less in each of the pieces."""
    return tuple(count - (piece in pieces) for piece, count in enumerate(counts))
