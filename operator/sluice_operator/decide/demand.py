"""What is asked of the fleet: the requests per second to plan for."""

import math
from dataclasses import dataclass
from typing import Final

from sluice_law.forecast import bearable
from sluice_law.nature import Nature
from sluice_operator.decide import coldstart
from sluice_operator.decide.outlook import outlook
from sluice_operator.decide.trust import USUAL_GAP, Fresh
from sluice_operator.decide.values import Memory
from sluice_operator.decide.windows import SHORT, WINDOW, over

PLANNED: Final = 0.85  # of what the load may be one cold start ahead; the queueing answers for what is shorter
HIGHEST: Final = 0.9  # the same for what scale-in must survive, for a whole stabilisation window without a break
SIGMAS: Final = 2.0  # a short count is believed as far as chance would not make it once in forty
DRAIN: Final = 30.0  # seconds in which what waits now should be worked off: one window, so that it shows in the next


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second, refused ones included."""

    expected: float  # what to plan for
    highest: float  # what it could be as well: scale-in must survive it
    backlog: float  # waiting now, in requests
    horizon: float  # seconds until a replica that is ordered now serves
    nature: Nature  # how the load moves
    level: float  # now


def demand(
    memory: Memory, seen: Fresh, now: float, patience: float = 0.0, hold: float = 0.0, ease: float = 1.0
) -> Demand:
    """What to plan for: a quantile of the forecast one cold start ahead, less what those who come can wait out in
    `patience` seconds, or more where the last seconds prove more.

    A replica that is ordered once a rise is seen serves a cold start later: until then a queue may grow. One that was
    taken away is back only after it was missed: what scale-in must survive is borne for a stabilisation window (`hold`,
    seconds) more, so that the same patience goes less far.

    An arrival count of N scatters by √(I·N), so a window speaks with its lower bound (one burst of five is no trend). The
    last seconds alone are asked only before there is any history, when the window's mean stands for the forecast:
    a burst of twenty seconds is over before a replica that is ordered for it serves."""
    horizon = (coldstart.seconds(memory) or coldstart.USUAL) + (memory.scrape_gap or USUAL_GAP)
    window, short = over(memory, now, WINDOW), over(memory, now, SHORT)
    count, recent = window.count("arrived_total"), short.count("arrived_total")
    ahead = outlook(memory, now, horizon)
    nature = memory.before if ahead is None else ahead.nature
    lower = _lower(count, window.seconds, nature)
    if ahead is None:
        lower = max(lower, _lower(recent, short.seconds, nature))
    if ahead is not None:
        level = ahead.level
        expected = bearable(ahead.quantile(eased(PLANNED, ease)), ahead.mean, horizon, patience)
        highest = bearable(ahead.quantile(eased(HIGHEST, ease)), ahead.mean, horizon + hold, patience)
    else:
        whole = window.seconds >= WINDOW - USUAL_GAP
        level = expected = window.rate("arrived_total") if whole else lower
        highest = (count + math.sqrt(count)) / window.seconds if window.seconds > 0 else 0.0
    return Demand(
        expected=max(expected, lower),
        highest=max(highest, lower),
        backlog=sum(sample.waiting for _, sample in seen.known),
        horizon=horizon,
        nature=nature,
        level=level,
    )


def eased(share: float, ease: float) -> float:
    """A quantile to plan for where `ease` times the promised misses may happen: so many times as often may the load be
    higher, as long as it is rather not."""
    return max(1.0 - ease * (1.0 - share), min(share, 0.5))


def _lower(count: float, seconds: float, nature: Nature) -> float:
    scatter = SIGMAS * math.sqrt(max(nature.dispersion, 1.0) * count)
    return max(0.0, count - scatter) / seconds if seconds > 0 else 0.0
