"""The constants of the candidate law."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Seconds, unless said otherwise. What halving or doubling one does is measured by the corpus's variants."""

    memory_seconds: float = 900.0
    """How long a burst is remembered. 1,800: Azure code 7.2 → 8.0 GPU-hours, a flash crowd is paid for twice as long."""

    slot_seconds: float = 15.0
    """Length of a slot of the history. Basis: three scrapes at 5 s; it bounds the state."""

    rise_seconds: float = 60.0
    """How long a load must have lasted to be planned for: both halves of it must need the replicas. A burst that ends
    sooner is over when a replica ordered for it is ready; the memory covers those that come back."""

    trend_seconds: float = 300.0
    """Time over which a trend is fitted, at least; a cold start if that is longer."""

    bin_seconds: float = 30.0
    """Time over which arrivals are counted for the fit. Basis: ten points in five minutes."""

    significance: float = 2.0
    """Standard errors by which a trend, or an excess of misses, must exceed chance."""

    growth_most: float = 2.0
    """Largest growth of the load until a replica is ready, as a factor. Basis: a line through five minutes says no more."""

    error_seconds: float = 1800.0
    """Time over which the misses that came are compared with those of the replay."""

    error_most: float = 1.5
    """Largest factor on the load by which the replay is corrected. Basis: a profile that is wrong by a third."""

    settled_seconds: float = 60.0
    """Time after a change of the fleet in which misses are not compared: they belong to the fleet before it."""

    pause_seconds: float = 30.0
    """Least time between two scale-ins."""


REPLAY: Final = ReplaySettings()
