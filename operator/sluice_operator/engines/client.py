"""The HTTP client of the engines, and the only one: it reads /metrics and writes /limits. Every call is bounded.

A pod that does not answer must not delay the calls to other pods, so every call has a deadline. A large answer must
neither fill the operator's memory nor block its event loop, so answers have a size bound and are parsed in a thread.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Protocol, Self

import aiohttp

from sluice import contract
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import Bounds, EngineSample
from sluice_operator.cluster.client import Endpoint
from sluice_operator.engines import exposition, start_report
from sluice_operator.engines.text_format import MAX_BYTES, TooLarge

log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = MAX_BYTES
# Seconds: long enough for the limits after a scrape. An idle connection takes 30 kB, and a fleet may have 5,000 pods.
KEPT_ALIVE: Final = 1.0


class ScrapeError(Exception):
    """A call to an engine failed. The message names the pod and the cause."""


class NoAnswer(ScrapeError):
    """The pod did not respond within the deadline, or its address is unreachable."""


class AnswerTooLarge(ScrapeError):
    """The pod's answer exceeds a bound and is rejected. The message names the bound."""


class Scraper(Protocol):
    """The interface to engines that reconcile uses."""

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        """Scrape one sample. Raises ScrapeError."""

    async def patch_limits(
        self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float, ttl: float = 0.0
    ) -> None:
        """Set bounds and targets, if any, and `retry_after`. Both are valid for at least `ttl` seconds.

        `retry_after`: seconds until a missing replica should be ready, 0 if none is missing. Raises ScrapeError.
        """


class HttpScraper:
    """`Scraper` over HTTP. `close()` must be awaited, or the object used as a context manager."""

    def __init__(
        self, timeout: float = 2.0, concurrency: int = 256, lease: Callable[[], float] = lambda: math.inf
    ) -> None:
        """Configure the client; connections open on the first call.

        `timeout`: seconds per call, including the wait for a connection. `concurrency`: bound on the calls in flight
        over all deployments, to bound their memory. `lease()`: seconds for which this process may still write, checked
        before each write.
        """
        self._seconds = timeout
        self._slots = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._lease = lease
        self._session: aiohttp.ClientSession | None = None
        # One thread: under the GIL more threads parse no faster and take more time from the event loop.
        self._parser = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-parser")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections and end the parser's thread."""
        self._parser.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        """Scrape one sample. Raises ScrapeError on no answer, an HTTP error, or an invalid sample."""
        body = await self._request("GET", endpoint, contract.PATH_METRICS)
        try:
            sample = await asyncio.get_running_loop().run_in_executor(self._parser, _parse, body)
        except TooLarge as error:
            raise _refused(endpoint, str(error)) from error
        except exposition.BadExposition as error:
            raise ScrapeError(f"pod {endpoint.pod}: {error}") from error
        if not start_report.is_starting(sample):
            return sample
        answer = await self._request("GET", endpoint, contract.PATH_READYZ, accepted=frozenset({503}))
        return replace(sample, start=start_report.read(answer))

    async def patch_limits(
        self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float, ttl: float = 0.0
    ) -> None:
        """Set bounds and targets, and the `retry_after` of a missing replica. Raises ScrapeError."""
        if self._lease() <= 0:
            raise ScrapeError(f"pod {endpoint.pod}: limits not sent: this process no longer holds the Lease")
        headers = {"Authorization": f"Bearer {token}"}
        await self._request(
            "PATCH", endpoint, contract.PATH_LIMITS, headers=headers, json=limits_body(bounds, retry_after, ttl)
        )

    async def _request(
        self,
        method: str,
        endpoint: Endpoint,
        path: str,
        headers: Mapping[str, str] | None = None,
        json: Mapping[str, Any] | None = None,
        accepted: frozenset[int] = frozenset(),
    ) -> bytes:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        url = f"http://{host}:{endpoint.port}{path}"
        if headers is None and endpoint.read_token:
            headers = {"Authorization": f"Bearer {endpoint.read_token}"}
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._slots,
                self._open().request(method, url, headers=headers, json=json, allow_redirects=False) as response,
            ):
                body = await _read_bounded(response, endpoint)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            kind = NoAnswer if _is_timeout(error) else ScrapeError
            what = str(error) or f"nothing within {self._seconds:g} s"
            raise kind(f"pod {endpoint.pod} did not answer {method} {path}: {what}") from error
        if response.status >= 300 and response.status not in accepted:
            detail = body[:200].decode("utf-8", errors="replace")
            raise ScrapeError(f"pod {endpoint.pod} answered {response.status} to {method} {path}: {detail}")
        return body

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=KEPT_ALIVE)
            # asyncio's deadline also covers the wait for a slot. No decompression: the bounds apply to the bytes sent.
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        return self._session


def _parse(body: bytes) -> EngineSample:
    return exposition.parse(body.decode("utf-8", errors="replace"))


def _is_timeout(error: Exception) -> bool:
    """True for a host that is unreachable or does not respond; a refused or reset connection fails at once."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return not isinstance(error.os_error, ConnectionError)
    return isinstance(error, TimeoutError)


async def _read_bounded(response: aiohttp.ClientResponse, endpoint: Endpoint) -> bytes:
    """Read the body. Raises AnswerTooLarge beyond MAX_BODY_BYTES."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _refused(endpoint, f"more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _refused(endpoint: Endpoint, bound: str) -> AnswerTooLarge:
    error = AnswerTooLarge(f"pod {endpoint.pod}: its answer is refused and counts as missing: {bound}")
    log.warning("%s", error)
    return error


def limits_body(bounds: Bounds | None, retry_after: float, ttl: float = 0.0) -> dict[str, Any]:
    """Return the body of PATCH /limits (`contract.LIMIT_FIELDS`). `ttl`: minimum validity in seconds."""
    notice = {
        "retry_after_seconds": retry_after,
        "ttl_seconds": max(ttl, LAW.ttl_seconds if bounds is None else bounds.ttl),
    }
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
    """Scrape all endpoints concurrently. Returns pod name → its sample, or the error."""

    async def one(endpoint: Endpoint) -> tuple[str, EngineSample | ScrapeError]:
        try:
            return endpoint.pod, await scraper.scrape(endpoint)
        except ScrapeError as error:
            return endpoint.pod, error

    return dict(await asyncio.gather(*(one(endpoint) for endpoint in endpoints)))
