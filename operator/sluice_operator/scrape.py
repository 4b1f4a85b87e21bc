"""The only module that talks to engines: reads /metrics, writes /limits. Everything here has a deadline and a bound.

A pod that does not answer must not hold up the pass over its siblings, and a pod that answers too much must not
fill the operator's memory.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, Self

import aiohttp

from sluice import contract
from sluice_operator import exposition
from sluice_operator.decide.admission import TTL
from sluice_operator.decide.values import Bounds, EngineSample
from sluice_operator.world import Endpoint

MAX_BODY_BYTES: Final = 2 * 1024 * 1024


class ScrapeError(Exception):
    """An engine did not answer as it should. The message says which, and how."""


class Scraper(Protocol):
    """What reconcile needs of the engines."""

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        """One sample. Raises ScrapeError."""

    async def patch_limits(self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float) -> None:
        """Set bounds and targets, if any, with their TTL, and tell in how many seconds a missing replica should serve; 0:
        none is missing. Raises ScrapeError."""


class HttpScraper:
    """Engines over HTTP. `concurrency` bounds requests in flight over all deployments; `timeout` is seconds each."""

    def __init__(self, timeout: float = 2.0, concurrency: int = 32) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._slots = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        """One sample. Raises ScrapeError on no answer, a bad answer, or one that is no engine's."""
        body = await self._request("GET", endpoint, contract.PATH_METRICS)
        try:
            return exposition.parse(body.decode("utf-8", errors="replace"))
        except exposition.BadExposition as error:
            raise ScrapeError(f"pod {endpoint.pod}: {error}") from error

    async def patch_limits(self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float) -> None:
        """Set bounds and targets, and tell of a missing replica. Raises ScrapeError."""
        headers = {"Authorization": f"Bearer {token}"}
        await self._request(
            "PATCH", endpoint, contract.PATH_LIMITS, headers=headers, json=limits_body(bounds, retry_after)
        )

    async def _request(
        self,
        method: str,
        endpoint: Endpoint,
        path: str,
        headers: Mapping[str, str] | None = None,
        json: Mapping[str, Any] | None = None,
    ) -> bytes:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        url = f"http://{host}:{endpoint.port}{path}"
        try:
            async with (
                self._slots,
                self._open().request(method, url, headers=headers, json=json, allow_redirects=False) as response,
            ):
                body = await _read_bounded(response)
                if response.status >= 300:
                    detail = body[:200].decode("utf-8", errors="replace")
                    raise ScrapeError(f"pod {endpoint.pod} answered {response.status} to {method} {path}: {detail}")
                return body
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise ScrapeError(f"pod {endpoint.pod} did not answer {method} {path}: {what}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=15)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._session


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """The body, at most MAX_BODY_BYTES of it. Raises ScrapeError beyond."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ScrapeError(f"{response.url} answered with more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def limits_body(bounds: Bounds | None, retry_after: float) -> dict[str, Any]:
    """The body of PATCH /limits (`contract.LIMIT_FIELDS`)."""
    notice = {"retry_after_seconds": retry_after, "ttl_seconds": TTL if bounds is None else bounds.ttl}
    if bounds is None:
        return notice
    return notice | {
        "max_concurrent": {"min": bounds.concurrency_min, "max": bounds.concurrency_max},
        "max_queue": bounds.max_queue,
        "kv_watermark": bounds.kv_watermark,
        "itl_target_ms": bounds.itl_target * 1000,
        "ttft_target_ms": bounds.ttft_target * 1000,
    }


async def scrape_all(scraper: Scraper, endpoints: Iterable[Endpoint]) -> dict[str, EngineSample | ScrapeError]:
    """Every endpoint at once: pod name → its sample, or why there is none."""

    async def one(endpoint: Endpoint) -> tuple[str, EngineSample | ScrapeError]:
        try:
            return endpoint.pod, await scraper.scrape(endpoint)
        except ScrapeError as error:
            return endpoint.pod, error

    return dict(await asyncio.gather(*(one(endpoint) for endpoint in endpoints)))
