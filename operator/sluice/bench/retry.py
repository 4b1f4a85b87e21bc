"""When and how long the official OpenAI client waits before it tries again, so that a bench fails where users would.

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
LONGEST_RETRY_AFTER: Final = 120.0  # a server that asks for more is not asked again
RETRIED_STATUSES: Final = frozenset({408, 409, 429})  # and everything from 500
REFUSALS: Final = frozenset({429, 503})


def should_retry(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer with this status is worth another attempt. `headers` must be case-insensitive."""
    asked = retry_after(headers)
    if asked is not None and math.isfinite(asked) and asked > LONGEST_RETRY_AFTER:
        return False
    told = headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return status in RETRIED_STATUSES or status >= 500


def delay(attempt: int, headers: Mapping[str, str] | None, rng: random.Random) -> float:
    """Seconds to wait after attempt number `attempt` (from 0) failed: what the server asks, else a jittered back-off."""
    asked = retry_after(headers) if headers is not None else None
    if asked is not None and 0 < asked <= LONGEST_RETRY_AFTER:
        return asked
    return min(FIRST_DELAY * 2.0 ** min(attempt, 16), LONGEST_DELAY) * (1 - 0.25 * rng.random())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks for: `retry-after-ms`, then `retry-after` as a number, then as a date; None if neither."""
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
