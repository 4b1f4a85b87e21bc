"""The gateway's HTTP server: routes, limits, start and drain.

It serves only the inference paths and limits the number of requests in flight. On a laptop it accepts only host names of
this machine, which blocks DNS rebinding (a web page that points its own name at 127.0.0.1).
"""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

from sluice import contract
from sluice.httpapi.body_budget import BodyBudget
from sluice.httpapi.connection import HttpServer
from sluice.httpapi.connection_limits import RECEIVE_SECONDS, WRITE_SECONDS, ConnectionLimits
from sluice.tracing import Tracing
from sluice_gateway.admin import AdminRoutes
from sluice_gateway.catalog.base import AdminHandler, Catalog
from sluice_gateway.catalog.model_routes import ModelRoutes
from sluice_gateway.catalog.running_models import RunningModels
from sluice_gateway.forwarding.proxy import Proxy, ProxyOptions
from sluice_gateway.holding import HoldQueue
from sluice_gateway.keys.gatekeeper import Gatekeeper, KeyOptions
from sluice_gateway.metrics import GatewayMetrics
from sluice_gateway.peers.documents import Asking, PeerReader
from sluice_gateway.peers.sent_prompts import MOST_BYTES, ReadPrompts
from sluice_gateway.queueing import QueueLimits
from sluice_gateway.rejection_log import RejectionLog
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.kv_feeds import FeedTimes, KvFeeds
from sluice_gateway.replicas.read_access import ReadOptions, ReadTokens
from sluice_gateway.replicas.scraper import Scraper
from sluice_gateway.routes import MAX_IN_FLIGHT, DataPort, routes
from sluice_gateway.routing import Canary, PolicyName, Routing
from sluice_gateway.upstream.pool import Connections

MAX_CONNECTIONS: Final = 2 * MAX_IN_FLIGHT  # of clients; idle ones too
BODY_BYTES: Final = 256 * 1024 * 1024  # of all bodies: each is kept for a retry until its answer begins
SMALL_BODY_BYTES: Final = 64 * 1024 * 1024  # of those up to 64 KiB, which large ones do not displace


class PortTaken(Exception):
    """Another program listens on the port. The message has the host and the port."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Options of a gateway. Port 0 selects a free port; without an admin port there is none.

    `policy` and `session_header` (by which clients name their conversations; None: they cannot) are for models whose owner
    does not say. `queue` bounds the requests that wait while all replicas are at their limits; None: engines queue for
    themselves. `kv_feeds` None: the engines' events of their KV caches are not followed.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    admin_port: int | None = None
    policy: PolicyName = "PrefixAware"
    session_header: str | None = None
    body_seconds: float = RECEIVE_SECONDS
    write_seconds: float = WRITE_SECONDS
    any_host: bool = False
    queue: QueueLimits | None = None
    keys: KeyOptions = field(default_factory=KeyOptions)
    tracing: Tracing | None = None  # the gateway closes it at its end
    reads: ReadOptions = field(default_factory=ReadOptions)
    kv_feeds: FeedTimes | None = None


class Gateway:
    """One URL over the replicas that `backends()` returns at the moment of each request."""

    def __init__(
        self,
        backends: Callable[[], Sequence[Backend]],
        options: GatewayOptions = GatewayOptions(),
        hold_queue: HoldQueue | None = None,
        catalog: Catalog | None = None,
        canaries: Callable[[], Mapping[str, Canary]] = dict,
    ) -> None:
        """Configure the gateway; `start` opens the sockets. Without a `hold_queue` or `catalog` no request is held.

        With a `catalog` there are the models that it names, and each has a queue of its own. `canaries()` are the canary
        revisions by the model's name. Raises KeysInvalid.
        """
        self._metrics = GatewayMetrics()
        self._options = options
        self._catalog: Catalog = RunningModels(hold_queue or HoldQueue()) if catalog is None else catalog
        routing_of = partial(self._catalog.routing, default=Routing(options.policy, options.session_header))
        self.fleet = Fleet(
            backends, routing_of, lambda kind: self._metrics.faults.labels(kind).inc(), self._catalog.names, canaries
        )
        self.fleet.shared_by(options.keys.gateways)
        self._read_tokens = ReadTokens(options.reads.key, options.reads.token)
        self._gatekeeper = Gatekeeper(options.keys)
        self._read_prompts = ReadPrompts()
        more: dict[str, AdminHandler] = {
            contract.PATH_RATES: self._gatekeeper.serve_rates,
            contract.PATH_PROMPTS: self._serve_prompts,
            **self._catalog.admin_routes,
        }
        self._admin = AdminRoutes(
            self.fleet,
            self._catalog.held,
            self._metrics,
            self._catalog.missing,
            more,
            read_token=self._read_tokens.of_release,
            is_guarded=options.reads.is_guarded,
        )
        self._runners: list[web.BaseRunner] = []
        self._session: aiohttp.ClientSession | None = None
        self._connections = Connections()
        self._tasks: list[asyncio.Task[None]] = []
        self._port, self._admin_port = options.port, options.admin_port
        rejections = RejectionLog(self._metrics.rejections)
        self._limits = ConnectionLimits(
            MAX_CONNECTIONS,
            BodyBudget(BODY_BYTES, SMALL_BODY_BYTES),
            receive_seconds=options.body_seconds,
            on_rejected=rejections.count,
        )
        self._data: DataPort | None = None
        self._proxy: Proxy | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Base URL for clients, without /v1."""
        return f"http://{self._options.host}:{self._port}"

    @property
    def admin_url(self) -> str:
        """Base URL of the admin port."""
        return f"http://{self._options.host}:{self._admin_port}"

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return 0 if self._data is None else self._data.in_flight

    @property
    def waiting(self) -> int:
        """Number of requests in flight that wait in the queue, because all replicas are at their limits."""
        return 0 if self._proxy is None else self._proxy.dispatcher.waiting

    @property
    def body_bytes(self) -> int:
        """Bytes of requests that are kept: until their answers begin, and of those that may go on elsewhere to their ends."""
        return self._limits.body_budget.count

    async def start(self) -> None:
        """Listen. Raises PortTaken."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self.scraper = Scraper(self._session, self.fleet, tokens=self._read_tokens)
        self.rates_of_others, self.prompts_of_others = self._readers(self._session)
        try:
            await self.scraper.scrape()  # before the first request: until then any replica may have any model
            readers = (self.rates_of_others.run(), self.prompts_of_others.run())
            self._tasks = [
                asyncio.create_task(each) for each in (self.scraper.run(), self._gatekeeper.follow(), *readers)
            ]
            if self._options.kv_feeds is not None:
                feeds = KvFeeds(self._session, self.fleet, self._read_tokens, self._options.kv_feeds)
                self._tasks.append(asyncio.create_task(feeds.run()))
            self._data = self._data_port(self._session)
            data = web.ServerRunner(HttpServer(self._data, self._limits), shutdown_timeout=1.0)
            self._port = await self._listen(data, self._options.port)
            if self._options.admin_port is not None:
                admin = web.AppRunner(self._admin.app(), access_log=None, shutdown_timeout=1.0)
                self._admin_port = await self._listen(admin, self._options.admin_port)
        except BaseException:
            await self.close()
            raise

    def _readers(self, session: aiohttp.ClientSession) -> tuple[PeerReader, PeerReader]:
        """Of what the other gateways have used of the rates, and of the prompts that they have sent."""
        rates, read = self._gatekeeper.rates, self._read_prompts

        def learn(documents: Mapping[str, Any]) -> None:
            for url, document in documents.items():
                for replica, prompt in read.learn(url, document):
                    self.fleet.sent_elsewhere(replica, prompt)

        of_rates = Asking(
            lambda _: contract.PATH_RATES,
            lambda found: rates.learn(list(found.values())),
            "each grants its share of the rates",
            needs_all=True,
        )
        of_prompts = Asking(
            lambda url: f"{contract.PATH_PROMPTS}?after={read.after(url)}",
            learn,
            "some prompts that replicas have cached are not known here",
            most_bytes=MOST_BYTES,
        )
        return PeerReader(session, self._read_tokens, of_rates), PeerReader(session, self._read_tokens, of_prompts)

    async def _serve_prompts(self, request: web.Request) -> web.StreamResponse:
        """What this gateway has sent of late, for the other gateways."""
        return web.json_response(self.fleet.sent_prompts.document(request.query.get("after", "")))

    def _data_port(self, session: aiohttp.ClientSession) -> DataPort:
        catalog = self._catalog
        options = ProxyOptions(self._options.queue, self._options.write_seconds)
        if not self._gatekeeper.verifies:
            options = replace(options, needs_unverified_key=catalog.needs_key)
        proxy = self._proxy = Proxy(self._connections, self.fleet, catalog.hold_queue, self._metrics, options)
        models = ModelRoutes(session, self.fleet, catalog, proxy.handle)
        served = routes(proxy.handle, models.list, models.one)
        loopback, tracing = not self._options.any_host, self._options.tracing
        return DataPort(self._metrics, served, self._gatekeeper, loopback=loopback, tracing=tracing)

    async def _listen(self, runner: web.BaseRunner, port: int) -> int:
        """Listen; returns the port. Raises PortTaken."""
        self._runners.append(runner)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._options.host, port, backlog=1024).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortTaken(f"port {port} on {self._options.host} is taken by another program") from error
        return int(runner.addresses[0][1])

    def shared_by(self, gateways: int, others: Sequence[str] = ()) -> None:
        """So many gateways share the rates of the key file, and the replicas, now; `others` are their admin ports."""
        self.fleet.shared_by(gateways)
        self._gatekeeper.shared_by(gateways)
        self.rates_of_others.others = others if self._gatekeeper.verifies else ()
        self.prompts_of_others.others = others
        self._read_prompts.keep(others)

    def unready(self) -> None:
        """Report unready, and close connections after their responses; new requests are still served."""
        self._admin.ready = False
        self._limits.closing = True

    def drain(self) -> None:
        """Reject new requests; requests in flight complete."""
        self.unready()
        if self._data is not None:
            self._data.draining = True

    async def idle(self) -> None:
        """Return once no request is in flight."""
        if self._data is not None:
            await self._data.idle()

    async def cut(self) -> int:
        """End the requests in flight with an error; returns their number."""
        cut = self.in_flight
        if self._data is not None and cut:
            await self._data.cut()
        return cut

    async def close(self) -> None:
        """Close all sockets."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for runner in self._runners:
            await runner.cleanup()
        self._connections.close()
        if self._session is not None:
            await self._session.close()
        if self._options.tracing is not None:
            await asyncio.to_thread(self._options.tracing.close)
