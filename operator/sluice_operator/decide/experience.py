"""What a new operator takes over from its predecessor: experience, not evidence.

How the load moves, how long requests are and how far the model is believed change over hours; a restart must not cost
a day of learning. What was counted in the last half minute is counted anew, and nothing is scaled down before a whole
stabilisation window has been observed.
"""

import math
from typing import Final

from sluice_law.nature import DISPERSION_BOUNDS, PRIOR_SLOTS, VOLATILITY_LEAST, VOLATILITY_MOST, Nature
from sluice_operator.decide import coldstart, confidence
from sluice_operator.decide.values import ColdStart, Lengths, Memory, Outlook

WORTH: Final = 20.0  # requests that remembered lengths weigh as much as: a minute of real ones outweighs them
LONGEST: Final = 1e7  # tokens; beyond, nobody meant it


def experienced(starts: tuple[tuple[str, ColdStart], ...], outlook: Outlook | None) -> Memory:
    """A memory that begins with what was learned. What cannot be meant is left out."""
    memory = Memory(starts=tuple((pod, start) for pod, start in starts if coldstart.is_sane(start))[-coldstart.KEPT :])
    if outlook is None:
        return memory
    low, high = DISPERSION_BOUNDS
    nature = Nature()
    if low <= outlook.dispersion <= high and 0.0 <= outlook.volatility <= VOLATILITY_MOST:
        nature = Nature(outlook.dispersion, max(outlook.volatility, VOLATILITY_LEAST), 5.0 * PRIOR_SLOTS)
    return Memory(
        starts=memory.starts,
        before=nature,
        lengths=_lengths(outlook),
        trust=outlook.trust if confidence.LEAST <= outlook.trust <= 1.0 else 1.0,
    )


def _lengths(outlook: Outlook) -> Lengths:
    """The sums that would give these means. `at` is set when they are first used."""
    output, prompt, cached = outlook.output_tokens, outlook.prompt_tokens, outlook.cached_tokens
    if not (1.0 <= output < LONGEST and 0.0 <= cached <= prompt < LONGEST):
        return Lengths()
    return Lengths(math.inf, WORTH, WORTH, WORTH * output, WORTH * prompt, WORTH * cached)
