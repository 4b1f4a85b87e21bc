"""From what the load needs to the next count, under the rules of moving.

`step` goes up at once and down after a window, wakes a sleeping model and lets an idle one sleep; `remember` keeps what
was wanted through the stabilisation window.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import coldstart
from sluice_operator.decide.floors import Range
from sluice_operator.decide.need import Need, is_idle
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Memory, Observed
from sluice_operator.decide.windows import WINDOW

SLOTS: Final = 60  # pieces of the stabilisation window that `Memory.wanted` remembers
HOLD_MOST: Final = 600.0  # seconds: an image that was pulled once in half an hour must not hold replicas for as long
WARMING_MOST: Final = 2.0  # windows more for caches: who asks for a short one must not wait for minutes
LOSSES: Final = 2.0  # of a cache per move: others compute a leaver's conversations again, who comes back has none


def step(
    spec: LLMDeploymentSpec,
    floor: Range,
    seen: Fresh,
    memory: Memory,
    wanted: Need,
    now: float,
    current: int,
    window: float,
) -> int:
    """The next count inside the range: up at once; down one at a time and only after every count wanted in the
    stabilisation window (`window`, `hold_seconds`) allowed it, with nothing loading and a whole window observed. The
    last replica leaves only after scaleToZeroAfterSeconds without any request."""
    current = floor.inside(current)
    if wanted.up > current:
        return min(wanted.up, floor.high)
    most = max((count for _, count in memory.wanted), default=current)
    watched = memory.started_at is not None and now - memory.started_at >= window
    spaced = memory.down_at is None or now - memory.down_at >= min(WINDOW, window)
    if wanted.hold or seen.coming or not watched or not spaced:
        return current
    if current == 1 and floor.low == 0 and memory.idle_since is not None:
        return 0 if now - memory.idle_since >= spec.scaling.scale_to_zero_after_seconds else 1
    return current if most >= current else max(current - 1, floor.low, 1)


def rest(memory: Memory, observed: Observed, seen: Fresh, now: float) -> Memory:
    """Note since when the whole fleet has been idle: every replica measured, and nobody held at the door."""
    idle = bool(seen.known) and not seen.missing and not observed.held and is_idle(seen, memory, now)
    if not idle:
        return memory if memory.idle_since is None else replace(memory, idle_since=None)
    return replace(memory, idle_since=now) if memory.idle_since is None else memory


def remember(floor: Range, memory: Memory, wanted: Need, now: float, current: int, window: float) -> Memory:
    """Keep the most that was wanted per slot of the stabilisation window; a hold wants what is there."""
    slot = max(1.0, window / SLOTS)
    count = floor.inside(max(wanted.keep, current if wanted.hold else 0))
    hole = slot + max(WINDOW, 3.0 * (memory.scrape_gap or 0.0))
    if not memory.wanted or now - memory.wanted[-1][0] > hole:
        # Nobody watched (another mode, a pause, writes that were refused): a whole window again before anything falls.
        memory = replace(memory, started_at=now)
    entries = tuple((at, kept) for at, kept in memory.wanted if now - window - slot < at <= now)
    if entries and now - entries[-1][0] < slot:
        entries = (*entries[:-1], (entries[-1][0], max(entries[-1][1], count)))
    else:
        entries = (*entries, (now, count))
    return replace(memory, wanted=entries)


def hold_seconds(spec: LLMDeploymentSpec, memory: Memory, cold: float) -> float:
    """How long fewer must have been enough: the stabilisation window, and no less than it takes to get a replica back. To
    go and to come back also costs what a cold cache holds less (`cold`, seconds of a replica: `warmth.cold_seconds`), once
    for each way: who moves only after having waited for as long as moving costs pays at most twice what hindsight would
    (the rent-or-buy rule: Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988). Up to three windows in all."""
    back = coldstart.usual(memory)
    window = max(
        float(spec.scaling.scale_down_stabilization_seconds), 0.0 if back is None else min(back.total, HOLD_MOST)
    )
    return window + min(LOSSES * cold, WARMING_MOST * window)


def quiet_seconds(memory: Memory, current: int, now: float) -> float:
    """For how long fewer than there are have been enough, as far as `Memory.wanted` goes back; 0 where they were not."""
    needed = [at for at, count in memory.wanted if count >= current]
    since = needed[-1] if needed else next((at for at, _ in memory.wanted), now)
    return max(0.0, now - since) if memory.wanted and memory.wanted[-1][1] < current else 0.0
