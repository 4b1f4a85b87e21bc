"""Repeats the passes of `sluice top`. A pass that fails after the first is shown as a fault, and the next one is tried."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sluice.cluster.top.rows import Row, rows
from sluice.cluster.top.scrape import Pass
from sluice_kube.errors import ClusterError

Show = Callable[[Sequence[Row], Sequence[str]], None]


async def watch(
    read: Callable[[], Awaitable[Pass]], show: Show, sleep: Callable[[], Awaitable[None]], *, once: bool
) -> None:
    """Show each pass until cancelled, or with `once` only the second. Raises ClusterError if the first pass fails."""
    before, now = None, await read()
    if not once:
        show(rows(before, now), now.faults)
    while True:
        await sleep()
        try:
            before, now = now, await read()
        except ClusterError as error:
            if once:
                raise
            show(rows(before, now), (str(error),))
            continue
        show(rows(before, now), now.faults)
        if once:
            return


async def pause(seconds: float) -> None:
    """The wait between two passes."""
    await asyncio.sleep(seconds)
