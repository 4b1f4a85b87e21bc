"""The time at which a starting replica should serve determines the Retry-After of rejected requests.

While replicas are missing, a full queue stays full: a retry after this engine's own queue delay would only be rejected
again. Capacity comes with the next replica. All requests rejected until then wait for the same moment, so their retries
are spread over the time in which this engine works off its own queue.
"""

import math
import time
import zlib
from collections.abc import Callable


class CapacityEta:
    """The operator's newest notice. It holds for its time to live and until the moment that it names."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = self._until = -math.inf

    def set(self, seconds: float, ttl: float) -> None:
        """Stores a notice: a replica should serve in `seconds` (0: none is missing). The notice holds for `ttl`
        seconds.
        """
        now = self._clock()
        self._at, self._until = now + seconds, now + ttl

    @property
    def seconds_left(self) -> float | None:
        """Seconds until a replica should serve; None if none is missing or the notice has expired."""
        now = self._clock()
        return self._at - now if now < min(self._at, self._until) else None

    def retry_after(self, own: float, request_id: str) -> float:
        """Returns the seconds after which a rejected request should retry. `own` is this engine's own estimate.

        Within the spread of `own` seconds, the position is a hash of the request id.
        """
        seconds_left = self.seconds_left
        return own if seconds_left is None else seconds_left + own * zlib.crc32(request_id.encode()) / 2**32
