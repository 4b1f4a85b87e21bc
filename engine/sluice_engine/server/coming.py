"""When the replica that is on its way should serve, as the operator says: what a refused client is told to wait.

While replicas are missing, a queue that is full stays full: who came again when its turn would have been here would only
be refused again. Room comes with the next replica. Everybody who is refused until then waits for that same moment, so
their return is spread over the time in which this engine works off its own queue.
"""

import math
import time
import zlib
from collections.abc import Callable


class Coming:
    """The newest word of the operator. It is believed for its time to live, and until the moment that it names."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = self._until = -math.inf

    def tell(self, seconds: float, ttl: float) -> None:
        """A replica should serve in so many seconds; 0: none is missing. To be believed for `ttl` seconds."""
        now = self._clock()
        self._at, self._until = now + seconds, now + ttl

    @property
    def left(self) -> float | None:
        """Seconds until a replica should serve; None where none is missing, or nobody has said so for too long."""
        now = self._clock()
        return self._at - now if now < min(self._at, self._until) else None

    def wait(self, own: float, request_id: str) -> float:
        """Seconds after which a refused request should come again, where this engine alone would say `own`."""
        left = self.left
        return own if left is None else left + own * zlib.crc32(request_id.encode()) / 2**32
