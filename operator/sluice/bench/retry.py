"""The retry rules and delays of the official OpenAI client, so that a benchmark request fails when a user's would.

Source: openai-python 3.x, `_base_client.py` (`_should_retry`, `_calculate_retry_timeout`).
"""

import email.utils
import math
import random
import time
from collections.abc import Mapping
from typing import Final

FIRST_DELAY: Final = 0.5  # seconds, doubling
LONGEST_DELAY: Final = 8.0
LONGEST_RETRY_AFTER: Final = 120.0  # a request with a longer Retry-After is not retried
RETRIED_STATUSES: Final = frozenset({408, 409, 429})  # and all from 500
REFUSALS: Final = frozenset({429, 503})


def should_retry(status: int, headers: Mapping[str, str]) -> bool:
    """True if a response with this status is to be retried. `headers` must be case-insensitive."""
    asked = retry_after(headers)
    if asked is not None and math.isfinite(asked) and asked > LONGEST_RETRY_AFTER:
        return False
    told = headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return status in RETRIED_STATUSES or status >= 500


def delay(attempt: int, headers: Mapping[str, str] | None, rng: random.Random) -> float:
    """Seconds to wait after attempt `attempt` (from 0) failed: the server's delay, else jittered back-off."""
    asked = retry_after(headers) if headers is not None else None
    if asked is not None and 0 < asked <= LONGEST_RETRY_AFTER:
        return asked
    return min(FIRST_DELAY * 2.0 ** min(attempt, 16), LONGEST_DELAY) * (1 - 0.25 * rng.random())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The server's delay in seconds: `retry-after-ms`, then `retry-after` as a number, then as a date; else None."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return float(value) / divisor
        except ValueError:
            continue
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    if date is None:
        return None
    try:
        return email.utils.mktime_tz(date) - time.time()
    except (ValueError, OverflowError):
        return None
