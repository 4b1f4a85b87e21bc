"""How long a request waits at a replica that has become silent: a busy one answers again, a stopped or lost one never."""

import asyncio
from collections.abc import Callable
from typing import Final

ALONE_SECONDS: Final = 30.0  # for which a replica may be silent where no other one would get the request


def patience(limit: asyncio.Timeout, has_other: Callable[[], bool]) -> Callable[[bool], None]:
    """Return what is told whether the replica is silent, at each probe that is not answered and once it answers again.

    `limit` then ends the wait: at once where `has_other()`, else after ALONE_SECONDS of silence.
    """

    def told(silent: bool) -> None:
        if limit.expired():
            return
        if not silent:
            limit.reschedule(None)
        elif has_other():
            limit.reschedule(0.0)
        elif limit.when() is None:
            limit.reschedule(asyncio.get_running_loop().time() + ALONE_SECONDS)

    return told
