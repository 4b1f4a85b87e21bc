"""Reads the feed of one gateway, over and over: `GET /held` stays open and sends each change (see `contract`)."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from sluice import contract
from sluice_operator.cluster.client import Key
from sluice_operator.gateways.held_requests import HeldRequests

RETRY_SECONDS: Final = 0.5
MOST_MODELS: Final = 10_000  # in one line
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=2.0, sock_read=3 * contract.HELD_HEARTBEAT_SECONDS)
_ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)

log = logging.getLogger(__name__)


class BadFeed(ValueError):
    """A line is not what `contract` describes."""


def parse_held(line: bytes) -> dict[Key, int]:
    """The counts of one line. Raises BadFeed."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadFeed("a line is not JSON") from error
    if not isinstance(found, dict) or len(found) > MOST_MODELS:
        raise BadFeed(f"a line is not a JSON object of at most {MOST_MODELS} models")
    counts = {}
    for text, count in found.items():
        namespace, _, name = text.partition("/")
        if not (namespace and name) or isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BadFeed(f"{text[:80]!r} is not namespace/name with a number of requests")
        counts[Key(namespace, name)] = count
    return counts


async def follow(
    session: aiohttp.ClientSession,
    gateway: tuple[str, str],
    held: HeldRequests,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Report what the gateway (its name, its admin URL) holds until cancelled. While it cannot be read, that is nothing."""
    name, url = gateway
    fault = ""
    try:
        while True:
            try:
                await _read(session, url + contract.PATH_HELD, lambda counts: held.report(url, counts))
                again = "its feed has ended"
            except _ERRORS as error:
                again = str(error) or type(error).__name__
            held.report(url, {})
            if again != fault:
                log.info("the feed of gateway %s is opened again: %s", name, again)
            fault = again
            await sleep(RETRY_SECONDS)
    finally:
        held.forget(url)


async def _read(session: aiohttp.ClientSession, url: str, report: Callable[[dict[Key, int]], None]) -> None:
    """Report each line until the gateway ends the feed."""
    async with session.get(url, timeout=_TIMEOUT, allow_redirects=False) as response:
        if response.status == 401:
            raise BadFeed("it does not have the operator's key of reads yet")
        if response.status != 200:
            raise BadFeed(f"{contract.PATH_HELD} answers with {response.status}")
        while line := await response.content.readline():
            report(parse_held(line))
