"""The server's lifecycle states which requests it accepts from loading to the end of the drain.

    loading ──ready──► serving ──SIGTERM, POST /drain──► lagging ──grace──► refusing
                                                         (unready, still serving)

Endpoints are updated with a delay: for some seconds after a pod turns unready, clients still connect. During the grace
period (phase "lagging") they are served with `Connection: close`. After it (phase "refusing") they are rejected with
Retry-After, and running requests may finish within the drain budget.
"""

import asyncio
import enum
import time
from collections.abc import Callable

from sluice_engine.server.capacity_eta import CapacityEta
from sluice_engine.server.errors import Unavailable

LOADING_RETRY_SECONDS = 2.0  # if the operator gave no time at which this replica should serve
DRAINING_RETRY_SECONDS = 1.0


class Phase(enum.Enum):
    """Phase of the server's lifecycle."""

    LOADING = "loading"
    SERVING = "serving"
    GRACE_PERIOD = "lagging"
    REJECTING = "refusing"
    FAILED = "failed"


class Lifecycle:
    """Holds the phase and calls `on_rejecting` at the end of the grace period of `grace_seconds`."""

    def __init__(
        self, grace_seconds: float, on_rejecting: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._grace = grace_seconds
        self._on_rejecting = on_rejecting
        self._rejecting = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.phase = Phase.LOADING
        self.capacity_eta = CapacityEta(clock)

    @property
    def ready(self) -> bool:
        """Whether the pod reports ready and receives new clients."""
        return self.phase is Phase.SERVING

    @property
    def closing(self) -> bool:
        """Whether responses close their connection."""
        return self.phase in (Phase.GRACE_PERIOD, Phase.REJECTING, Phase.FAILED)

    def rejection(self) -> Unavailable | None:
        """Returns the error for new requests; None while requests are accepted."""
        if self.phase is Phase.LOADING:
            wait = self.capacity_eta.seconds_left or LOADING_RETRY_SECONDS
            return Unavailable("The model is loading.", code="loading", retry_after=wait)
        if self.phase is Phase.REJECTING:
            return Unavailable("This server is draining.", code="draining", retry_after=DRAINING_RETRY_SECONDS)
        if self.phase is Phase.FAILED:
            return Unavailable("The engine has exited.", code="engine_failed", retry_after=DRAINING_RETRY_SECONDS)
        return None

    def loaded(self) -> None:
        """Enters the serving phase: the engine is ready and the tokenizer is loaded."""
        if self.phase is Phase.LOADING:
            self.phase = Phase.SERVING

    def failed(self) -> None:
        """Enters the failed phase: the engine has exited and no request is accepted."""
        self.phase = Phase.FAILED
        self._rejecting.set()

    def drain(self, *, grace: bool = True) -> None:
        """Turns unready at once and rejects after the grace period; rejects at once while loading or without `grace`.

        Idempotent.
        """
        if self.phase is Phase.LOADING or not grace:
            self._reject()
        elif self.phase is Phase.SERVING:
            self.phase = Phase.GRACE_PERIOD
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._reject)

    async def wait_rejecting(self) -> None:
        """Waits until the grace period is over or the engine has failed."""
        await self._rejecting.wait()

    def _reject(self) -> None:
        if self.phase is not Phase.FAILED:
            self.phase = Phase.REJECTING
            self._on_rejecting()
        self._rejecting.set()
