"""The HTTP process from its first socket to its exit code. It is PID 1 of the pod.

It listens before the model is loaded and turns signals into drains. It exits when the engine process exits, and the
engine process exits when this process does.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from sluice import contract, tracing
from sluice.auth.read_tokens import TokenFile
from sluice.httpapi.connection import HttpServer
from sluice.httpapi.connection_limits import (
    ADMIN_CONNECTIONS,
    ConnectionLimits,
    data_connections,
    raise_open_files,
)
from sluice.models.uri import LocalModel, parse_uri
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.errors import StartError
from sluice_engine.limits import at_start
from sluice_engine.pulled import held, servable
from sluice_engine.server.api import about, admin, data_routes
from sluice_engine.server.context import Serving
from sluice_engine.server.engine.client import ENGINE_MODULE, EngineClient
from sluice_engine.server.errors import Unavailable
from sluice_engine.server.lifecycle import DRAINING_RETRY_SECONDS, Lifecycle, Phase
from sluice_engine.server.limit_log import LimitLog
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.model_fetch import ModelFetch
from sluice_engine.server.options import ServerSettings
from sluice_engine.server.start_failure import StartFailed, check_model, load_secrets
from sluice_engine.server.targets import TargetsFile, follow
from sluice_engine.server.transport.cors import Cors
from sluice_engine.server.transport.router import Router
from sluice_engine.server.transport.sockets import bind, is_loopback
from sluice_engine.server.transport.tls import TlsEndpoint, TlsSite
from sluice_engine.server.vllm_metrics import VllmMetrics
from sluice_engine.sources import SourceError, default_cache, memory_plan
from sluice_engine.text import TokenizerInvalid, load_text_model

FLUSH_SECONDS: Final = 1.0  # seconds for the last bytes of aborted streams
REAP_SECONDS: Final = 5.0
BACKLOG: Final = 4096

log = logging.getLogger("sluice.server")


class Server:
    """One `sluice serve` process. `run()` may be called once."""

    def __init__(self, options: EngineOptions, settings: ServerSettings, engine_module: str = ENGINE_MODULE) -> None:
        """Raises StartFailed if the key file or the certificate cannot be used: the server never starts without them."""
        self._targets = TargetsFile(settings.targets_file, options)
        self._targets.poll()
        self._options = options = msgspec.structs.replace(options, limits=self._targets.limits)
        self._settings = settings
        self._stop = asyncio.Event()
        self._interactive = False  # stopped by Ctrl-C: no endpoint list lags behind, so there is no grace period
        self._stop_now = asyncio.Event()
        vllm = VllmMetrics(options.served_name) if settings.metrics_compat == "vllm" else None
        metrics = EngineMetrics(options, vllm=vllm)
        self._engine = EngineClient(options, self, engine_module)
        lifecycle = Lifecycle(options.grace_seconds, lambda: self._engine.send(messages.Drain()))
        self._serving = Serving(options, metrics, lifecycle, self._engine)
        self._fetch = self._serving.fetch = ModelFetch(
            options.model, settings, self.on_loading, memory=partial(memory_plan, options)
        )
        self._serving.tracing = tracing.from_environment("sluice-engine")
        self._limit_log = LimitLog(at_start(options.limits))
        self._held = contextlib.ExitStack()  # the model folder: `sluice model rm` refuses to remove it meanwhile
        self._secrets = load_secrets(settings.secrets, self._serving.access_metrics, self._send_weights)

    # --- messages of the engine ------------------------------------------------------------------------------------

    def on_loading(self, message: messages.Loading) -> None:
        """Stores and records the progress of the load."""
        self._serving.loading = message
        self._serving.metrics.on_loading(message)

    def on_ready(self, message: messages.Ready) -> None:
        """Starts serving if the tokenizer is loaded, and sends the current targets to the engine."""
        self._serving.check_complete()
        # The file may have changed before the engine was connected.
        self._engine.send(messages.BaseLimits(self._targets.limits))
        self._send_weights(self._secrets.weights)
        self._serving.metrics.on_ready(message)
        paced = ", held to a given step time by --pace" if message.paced else ""
        log.info(
            "ready: %s on %s in %s, %d KV blocks of %g tokens, context %d%s",
            self._options.served_name,
            message.device,
            message.dtype,
            message.num_blocks,
            message.block_size,
            message.max_model_length,
            paced,
        )

    def on_step(self, report: messages.StepReport, now: float) -> None:
        """Records what a step says of its requests."""
        self._serving.metrics.on_step(report, now)

    def on_report(self, report: messages.StepReport) -> None:
        """Records what a step says of the engine."""
        self._serving.metrics.on_report(report)
        self._limit_log.on_step(report)

    def on_rejected(self, message: messages.Rejected) -> None:
        """Records a rejection by the engine."""
        self._serving.metrics.on_rejected(message)

    def on_fault(self, error: Exception) -> None:
        """Records an exception of the methods above: requests continue, and the measurement is lost."""
        self._serving.metrics.on_fault(error)

    def _send_weights(self, weights: Mapping[str, float]) -> None:
        self._engine.send(messages.TenantWeights(dict(weights)))

    # --- the process -----------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serves until a signal arrives or the engine exits. Returns the exit code.

        Raises OptionInvalid (a port is taken) and StartFailed.
        """
        model = parse_uri(self._options.model)
        if isinstance(model, LocalModel):
            check_model(model.path)
        raise_open_files()
        runners = await self._listen()
        self._handle_signals()
        folder = asyncio.create_task(self._fetched(), name="fetch")
        engine = asyncio.create_task(self._run_engine(folder), name="engine")
        background = [
            asyncio.create_task(self._load_text(folder)),
            asyncio.create_task(self._reap()),
            asyncio.create_task(self._serving.grammars.start()),
            asyncio.create_task(follow(self._targets, self._serving.set_base_limits)),
            *map(asyncio.create_task, self._secrets.followers(self._serving.threads)),
        ]
        stopping = asyncio.create_task(self._stopping(), name="stopping")
        try:
            await asyncio.wait({engine, stopping, background[0]}, return_when=asyncio.FIRST_COMPLETED)
            if background[0].done() and not engine.done() and not stopping.done():
                background[0].result()  # raises StartFailed if the tokenizer is unusable
                await asyncio.wait({engine, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if engine.done():
                await self._on_engine_exit(engine.result())
            return stopping.result()
        finally:
            self._serving.lifecycle.failed()
            self._fetch.stop()
            for task in (*background, stopping, folder):
                task.cancel()
            await self._engine.stop()
            await self._serving.grammars.stop()
            with contextlib.suppress(asyncio.CancelledError, StartFailed):
                await engine
            for runner in runners:
                await runner.cleanup()
            self._serving.threads.shutdown(wait=False, cancel_futures=True)
            self._held.close()
            if self._serving.tracing is not None:
                await asyncio.to_thread(self._serving.tracing.close)

    async def _listen(self) -> list[web.ServerRunner]:
        settings = self._settings
        data_socket = bind(settings.host, settings.port, "--port")
        try:
            admin_socket = bind(settings.host, settings.admin_port, "--admin-port")
        except Exception:
            data_socket.close()
            raise
        loopback = is_loopback(data_socket)
        token = admin.AdminToken(settings.admin_token_file, loopback=loopback)
        access, tls = self._secrets.access, self._secrets.tls
        routes = data_routes.routes()
        cors = Cors(settings.cors_origins)
        data = Router(
            self._serving,
            routes,
            loopback=loopback,
            access=access,
            public=about.routes(),
            cors=cors,
        )
        read_token = None if settings.read_token_file is None else TokenFile(settings.read_token_file)
        control = Router(self._serving, admin.routes(token, read_token), loopback=loopback)
        runners = [
            await self._start(data_socket, data, ConnectionLimits(data_connections()), tls),
            await self._start(admin_socket, control, ConnectionLimits(ADMIN_CONNECTIONS)),
        ]
        log.info(
            "listening on %s://%s:%d, %s, admin on port %d",
            "http" if tls is None else "https",
            settings.host,
            data_socket.getsockname()[1],
            "no API key needed" if settings.secrets.api_keys is None else "with API keys",
            admin_socket.getsockname()[1],
        )
        return runners

    async def _start(
        self, listener: socket.socket, router: Router, limits: ConnectionLimits, tls: TlsEndpoint | None = None
    ) -> web.ServerRunner:
        runner = web.ServerRunner(HttpServer(router, limits), shutdown_timeout=FLUSH_SECONDS)
        await runner.setup()
        site = (
            web.SockSite(runner, listener, backlog=BACKLOG) if tls is None else TlsSite(runner, listener, tls, BACKLOG)
        )
        await site.start()
        return runner

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stop.is_set():
            log.info("%s again: exiting immediately", name)
            self._stop_now.set()
        else:
            running = self._engine.in_flight
            log.info("%s: %s", name, f"{running} requests are finished first" if running else "stopping")
            self._interactive = number == signal.SIGINT
            self._stop.set()

    async def _stopping(self) -> int:
        """Waits for a signal, drains, and returns the exit code: EXIT_FAILED if requests had to be aborted."""
        await self._stop.wait()
        lifecycle = self._serving.lifecycle
        if lifecycle.phase is Phase.LOADING:
            return contract.EXIT_OK
        lifecycle.drain(grace=not self._interactive)
        drained = asyncio.create_task(self._drained())
        now = asyncio.create_task(self._stop_now.wait())
        budget = self._options.grace_seconds + self._options.drain_seconds
        await asyncio.wait({drained, now}, timeout=budget, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        if drained.done():
            return contract.EXIT_OK
        drained.cancel()
        cut = self._engine.in_flight
        log.warning("%d requests are still running and are aborted", cut)
        self._engine.fail_all(
            Unavailable(
                "The server stopped before the response was complete; send the request again.",
                code="draining",
                retry_after=DRAINING_RETRY_SECONDS,
            )
        )
        await self._flushed()
        return contract.EXIT_FAILED if cut else contract.EXIT_OK

    async def _drained(self) -> None:
        """Waits until the grace period is over and no request is in flight."""
        await self._serving.lifecycle.wait_rejecting()
        await self._serving.idle.wait()

    async def _flushed(self) -> None:
        """Waits up to FLUSH_SECONDS for the last events to be sent."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._serving.idle.wait(), FLUSH_SECONDS)

    async def _on_engine_exit(self, status: int) -> None:
        """Handles the exit of the engine: requests in flight receive their error, then this process exits too.

        Raises StartFailed.
        """
        self._serving.lifecycle.failed()
        await self._flushed()
        failed = self._engine.failed
        if failed is not None:
            raise StartFailed(failed.reason, failed.message)
        cause = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        raise StartFailed(contract.REASON_ENGINE_CRASHED, f"The engine process ended with {cause}; see its log above.")

    async def _fetched(self) -> Path:
        """The model's folder on this machine. Raises StartFailed."""
        try:
            fetched = await self._fetch.run()
            self._serving.metrics.revision = self._fetch.revision or ""
            cache = self._settings.cache or default_cache()
            folder = await asyncio.to_thread(servable, fetched, self._options.dtype, cache)
        except (SourceError, StartError) as error:
            raise StartFailed(error.reason, str(error)) from error
        check_model(folder)
        self._held.enter_context(held(folder))
        return folder

    async def _run_engine(self, folder: "asyncio.Task[Path]") -> int:
        return await self._engine.run(await folder)

    async def _load_text(self, folder: "asyncio.Task[Path]") -> None:
        path = await folder
        loop = asyncio.get_running_loop()
        try:
            text = await loop.run_in_executor(self._serving.threads, load_text_model, path)
        except TokenizerInvalid as error:
            raise StartFailed(contract.REASON_MODEL_INVALID, f"{error}.") from error
        if text.chats and self._serving.options.task in ("auto", "generate"):
            log.info("%s", text.why_dialect)
        self._serving.text_loaded(text)

    async def _reap(self) -> None:
        """As PID 1, reaps orphaned processes, which have no other parent."""
        while os.getpid() == 1:
            await asyncio.sleep(REAP_SECONDS)
            reap_orphans({self._engine.pid, self._serving.grammars.pid})


def reap_orphans(except_pids: Collection[int | None]) -> None:
    """Reaps exited children up to one of `except_pids`, whose exit status asyncio collects itself."""
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid in except_pids:
                return
            os.waitpid(child.si_pid, 0)
