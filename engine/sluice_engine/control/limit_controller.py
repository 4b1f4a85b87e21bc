"""Keeps the limits in force: the base limits, a patch that overrides them, and the concurrency inside their range.

There are three writers. The options and the targets file give the base limits, which never expire. `PATCH /limits`
overrides them until its TTL runs out, so tightened limits do not stay tight without the operator. Once a second the
fast loop (`sluice_perfmodel.concurrency_limit`) sets the concurrency. A lower limit drains; it aborts no request.
"""

import math

from sluice_engine.limits import LimitChanges, Limits, LimitsInForce
from sluice_perfmodel.concurrency_limit import EngineLoad, LimitState, LimitTargets, next_limit, slowed
from sluice_perfmodel.step_time import StepTimeModel

TICK_SECONDS = 1.0
WINDOW_SECONDS = 5.0  # of measurements that the limit is computed from


class LimitController:
    """The current limits with their expiry, and the concurrency that the fast loop chooses inside their range."""

    def __init__(self, base: Limits) -> None:
        self.base = base
        self.current = base
        self.expires_at: float | None = None
        self.reason = "cold"
        self._patched: LimitChanges = {}
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
        """Seconds until the base limits return; None when they are in force."""
        return None if self.expires_at is None else max(0.0, self.expires_at - now)

    def in_force(self, now: float) -> LimitsInForce:
        """The limits that apply at `now`, as the engine publishes them."""
        return LimitsInForce(limits=self.current, concurrency=self.concurrency, ttl=self.ttl(now), reason=self.reason)

    def patch(self, changes: LimitChanges, ttl: float | None, now: float) -> None:
        """Apply the changes for `ttl` seconds, from the next step on.

        Without a TTL they stay until the next patch. A minimum above the maximum is lowered to it.
        """
        self._patched |= changes
        self._install()
        self.expires_at = None if ttl is None else now + ttl

    def set_base(self, base: Limits) -> None:
        """Replace the base limits, from the next step on. A patch in force keeps overriding its fields."""
        self.base = base
        self._install()

    def expire(self, now: float) -> bool:
        """Return to the base limits when the TTL has run out. Returns whether that happened."""
        if self.expires_at is None or now < self.expires_at:
            return False
        self.expires_at = None
        self._patched = {}
        self._install()
        return True

    def due(self, now: float) -> bool:
        """Whether a second has passed since the last tick."""
        return now >= self._next_tick

    def tick(self, now: float, model: StepTimeModel | None, load: EngineLoad) -> bool:
        """One iteration of the fast loop. Returns whether the limit or its reason changed."""
        self._next_tick = now + TICK_SECONDS
        before = (self.concurrency, self.reason)
        limits = self.current
        targets = LimitTargets(
            minimum=limits.concurrency_min,
            maximum=limits.concurrency_max,
            itl=limits.itl_target,
            kv_watermark=limits.kv_watermark,
        )
        self._state, self.reason = next_limit(self._state, model, load, targets)
        return before != (self.concurrency, self.reason)

    def _install(self) -> None:
        self.current = self.base.changed(**self._patched)
        inside = min(max(self.concurrency, self.current.concurrency_min), self.current.concurrency_max)
        if inside != self.concurrency:
            self._state = self._state._replace(limit=inside)
            self.reason = "bounds"


def predicted_wait(waiting: int, running: int, limit: int, residence: float) -> float:
    """Seconds until one more request would start: Little's law over the places that turn over.

    `residence` is the mean time that a request runs, seconds; each of `limit` places frees once per residence.
    """
    ahead = waiting + 1 - max(0, limit - running)
    return max(0, ahead) * residence / max(1, limit)
