"""The limits in force: the base bounds, a patch that overrides them, and the concurrency limit within.

Three writers: options and targets file give the base bounds, which never expire; `PATCH /limits` overrides them until
its TTL runs out, so tightened limits do not stay tight without the operator; and once a second the fast loop
(`sluice_perfmodel.concurrency_limit`) sets the concurrency within them. A lower limit drains; it aborts no request.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from sluice_perfmodel.concurrency_limit import EngineLoad, LimitState, LimitTargets, next_limit, slowed
from sluice_perfmodel.step_time import StepTimeModel

TICK_SECONDS = 1.0
WINDOW_SECONDS = 5.0  # of measurements that the limit is computed from


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds and targets. Times in seconds; `kv_watermark` is the share of the pool running requests may hold."""

    concurrency_min: int = 1
    concurrency_max: int = 256
    max_queue: int = 1024
    max_batched_tokens: int = 2048
    kv_watermark: float = 1.0
    itl_target: float = 0.05
    ttft_target: float = 2.0


_BOUND_NAMES = frozenset(f.name for f in fields(Bounds))


class Limits:
    """Bounds with their expiry, and the concurrency limit inside them."""

    def __init__(self, base: Bounds) -> None:
        self.base = base
        self.bounds = base
        self.expires_at: float | None = None
        self.reason = "cold"
        self._patched: dict[str, float | int] = {}
        self._state = LimitState(limit=max(base.concurrency_min, base.concurrency_max))
        self._next_tick = -math.inf

    @property
    def concurrency(self) -> int:
        """Requests that may run at once."""
        return self._state.limit

    def published(self, model: StepTimeModel) -> StepTimeModel:
        """The published step-time model: the fitted one, slowed where minutes of measurements exceed it."""
        return slowed(model, self._state)

    def ttl(self, now: float) -> float | None:
        """Seconds until the base bounds return; None when they are in force."""
        return None if self.expires_at is None else max(0.0, self.expires_at - now)

    def patch(self, changes: Mapping[str, float | int | None], ttl: float | None, now: float) -> None:
        """Replace the given bounds (None leaves one as it is) for `ttl` seconds, from the next step on.

        Without a TTL the change stays until the next patch. A minimum above the maximum is lowered to it.
        """
        given = {name: value for name, value in changes.items() if value is not None and name in _BOUND_NAMES}
        self._patched |= given
        self._install()
        self.expires_at = None if ttl is None else now + ttl

    def rebase(self, base: Bounds) -> None:
        """Replace the base bounds, from the next step on. A patch in force keeps overriding its fields."""
        self.base = base
        self._install()

    def expire(self, now: float) -> bool:
        """Return to the base bounds when the TTL has run out. Returns whether that happened."""
        if self.expires_at is None or now < self.expires_at:
            return False
        self.expires_at = None
        self._patched.clear()
        self._install()
        return True

    def due(self, now: float) -> bool:
        """Whether a second has passed since the last tick."""
        return now >= self._next_tick

    def tick(self, now: float, model: StepTimeModel | None, load: EngineLoad) -> bool:
        """One iteration of the fast loop. Returns whether the limit or its reason changed."""
        self._next_tick = now + TICK_SECONDS
        before = (self.concurrency, self.reason)
        targets = LimitTargets(
            minimum=self.bounds.concurrency_min,
            maximum=self.bounds.concurrency_max,
            itl=self.bounds.itl_target,
            kv_watermark=self.bounds.kv_watermark,
        )
        self._state, self.reason = next_limit(self._state, model, load, targets)
        return before != (self.concurrency, self.reason)

    def _install(self) -> None:
        bounds = replace(self.base, **self._patched)  # type: ignore[arg-type]
        bounds = replace(bounds, concurrency_min=min(bounds.concurrency_min, bounds.concurrency_max))
        self.bounds = bounds
        inside = min(max(self.concurrency, bounds.concurrency_min), bounds.concurrency_max)
        if inside != self.concurrency:
            self._state = self._state._replace(limit=inside)
            self.reason = "bounds"


def predicted_wait(waiting: int, running: int, limit: int, residence: float) -> float:
    """Seconds until one more request would start: Little's law over the places that turn over.

    `residence` is the mean time that a request runs, seconds; each of `limit` places frees once per residence.
    """
    ahead = waiting + 1 - max(0, limit - running)
    return max(0, ahead) * residence / max(1, limit)
