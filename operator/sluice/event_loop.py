"""The event loop of the processes that serve: uvloop's where it is installed, asyncio's elsewhere."""

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What `asyncio.Runner` takes: uvloop's loop, or None for asyncio's own."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
