"""From loading to the last stream: what this pod accepts at each moment, and when it stops.

    loading ──ready──► serving ──SIGTERM, POST /drain──► lagging ──grace──► refusing
                                                         (unready, still serving)

Endpoints lag: after a pod turns unready, clients still come for some seconds. They are served with
`Connection: close`; then they are refused with Retry-After, and what runs may finish within its budget.
"""

import asyncio
import enum
import time
from collections.abc import Callable

from sluice_engine.server.coming import Coming
from sluice_engine.server.errors import Unavailable

LOADING_RETRY_SECONDS = 2.0  # where no operator says when this replica should serve
DRAINING_RETRY_SECONDS = 1.0


class Phase(enum.Enum):
    """Where in its life the server is."""

    LOADING = "loading"
    SERVING = "serving"
    LAGGING = "lagging"
    REFUSING = "refusing"
    FAILED = "failed"


class Lifecycle:
    """The phase, and who is told when refusing begins."""

    def __init__(
        self, grace_seconds: float, on_refusing: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._grace = grace_seconds
        self._on_refusing = on_refusing
        self._refusing = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.phase = Phase.LOADING
        self.coming = Coming(clock)

    @property
    def ready(self) -> bool:
        """Whether new clients should be sent here."""
        return self.phase is Phase.SERVING

    @property
    def closing(self) -> bool:
        """Whether responses should close their connection."""
        return self.phase in (Phase.LAGGING, Phase.REFUSING, Phase.FAILED)

    def refusal(self) -> Unavailable | None:
        """Why nothing is accepted now; None while requests are welcome."""
        if self.phase is Phase.LOADING:
            wait = self.coming.left or LOADING_RETRY_SECONDS
            return Unavailable("The model is loading.", code="loading", retry_after=wait)
        if self.phase is Phase.REFUSING:
            return Unavailable("This server is draining.", code="draining", retry_after=DRAINING_RETRY_SECONDS)
        if self.phase is Phase.FAILED:
            return Unavailable("The engine has ended.", code="engine_failed", retry_after=DRAINING_RETRY_SECONDS)
        return None

    def loaded(self) -> None:
        """The engine serves and the tokenizer is there."""
        if self.phase is Phase.LOADING:
            self.phase = Phase.SERVING

    def failed(self) -> None:
        """The engine is gone: nothing is accepted any more."""
        self.phase = Phase.FAILED
        self._refusing.set()

    def drain(self) -> None:
        """Unready from now on; refusing after the grace. Idempotent."""
        if self.phase is Phase.LOADING:
            self._refuse()
        elif self.phase is Phase.SERVING:
            self.phase = Phase.LAGGING
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._refuse)

    async def wait_refusing(self) -> None:
        """Returns when the grace is over."""
        await self._refusing.wait()

    def _refuse(self) -> None:
        if self.phase is not Phase.FAILED:
            self.phase = Phase.REFUSING
            self._on_refusing()
        self._refusing.set()
