"""The lifecycle of the operator process: health endpoint, wait for the CRD, leader election, then the work as leader.

The first task that ends determines the exit code: 0 after a signal, 1 in every other case, so that Kubernetes restarts
the process.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sluice import contract
from sluice.event_loop import loop_factory
from sluice_kube.api import connect
from sluice_operator.cluster.cache import Feed, ObjectCache, Polling, Resync
from sluice_operator.cluster.cache.store import is_newer
from sluice_operator.cluster.client import ClusterClient, ClusterError, Key, Object
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.cluster.lease import KubeLease
from sluice_operator.engines.client import HttpScraper
from sluice_operator.gateways.watch import Gateways
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.model_check import HubReader, ModelChecks
from sluice_operator.reconcile.children.admin_token import older_keys, operator_key
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.runtime.health import Health
from sluice_operator.runtime.leader_election import Election
from sluice_operator.runtime.read_access import ReleaseToken, release_token, share
from sluice_operator.runtime.watchdog import Watchdog
from sluice_operator.runtime.watches import polled_kinds, watch, watched_kinds
from sluice_operator.runtime.workqueue import Workers
from sluice_operator.settings import Settings

log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 30.0
_CRD_SECONDS: Final = 5.0
_KOPF_WATCHES: Final = "kopf._cogs.clients.watching"  # logger; its lines have level DEBUG


@dataclass(frozen=True, slots=True)
class Watches:
    """What the watches feed."""

    cache: ObjectCache
    cluster: KubeClient
    watchdog: Watchdog
    gateways: Gateways


def main(settings: Settings) -> int:
    """Run until a signal or a fault and return the exit code."""
    limit_kopf_logs()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(run(settings))
    except (ClusterError, OSError) as error:
        log.error("%s", error)
        return contract.EXIT_FAILED


def limit_kopf_logs() -> None:
    """Log warnings of Kopf only, and at the level of this process when its watches begin, end or lose their version."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger(_KOPF_WATCHES).setLevel(logging.getLogger().level)


async def run(settings: Settings) -> int:
    """Run the operator; return the exit code. Raises ClusterError without a cluster, OSError if the port is in use."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = OperatorMetrics(settings.metrics_resources)
    watchdog = Watchdog(metrics=metrics)
    release = ReleaseToken()
    read_token = (lambda: release.value) if settings.metrics_auth == "token" else None
    health = Health(watchdog.fault, metrics, has_profiler=settings.has_profiler, read_token=read_token)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connect())
        election = Election(KubeLease(client, settings.pod_namespace, settings.lease_name), settings.pod_name)
        engines = HttpScraper(settings.scrape_timeout, settings.scrape_concurrency, election.remaining)
        scraper = await stack.enter_async_context(engines)
        await health.start(settings.health_port)
        models = ModelChecks(HubReader(settings.hub_endpoint))
        stack.push_async_callback(models.close)
        gateways = Gateways(client, settings.pod_namespace, settings.gateway_service)
        cache = ObjectCache((*watched_kinds(settings), *polled_kinds(settings)))
        cluster = KubeClient(client, election.remaining, gateways.held, cache)
        context = Context(cluster, scraper, settings, metrics=metrics, models=models)
        learning = asyncio.create_task(release.learn(cluster, settings), name="the token of reads")
        try:
            return await _until_stopped(stop, _lead(context, election, Watches(cache, cluster, watchdog, gateways)))
        finally:
            learning.cancel()
            await asyncio.gather(learning, return_exceptions=True)
            metrics.leads(False)
            await election.release()
            await health.close()


async def _until_stopped(stop: asyncio.Event, work: "asyncio._CoroutineLike[str]") -> int:
    """Run `work` until it ends or a signal arrives; return the exit code."""
    working = asyncio.create_task(work, name="the work")
    stopping = asyncio.create_task(stop.wait(), name="waiting for a signal")
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return contract.EXIT_OK
    stopping.cancel()
    why = working.result()
    if not why:
        return contract.EXIT_OK
    log.error("the operator ends: %s", why)
    return contract.EXIT_FAILED


async def _lead(context: Context, election: Election, watches: Watches) -> str:
    """Wait for the CRD, the Lease and the key, then lead; return the cause of the end, empty after a signal.

    The key comes after the Lease, because the operator creates it and writes nothing without the Lease.
    """
    await _wait_for_crd(context.cluster, context.settings)
    await election.acquire()
    context.metrics.leads(True)
    holding = asyncio.create_task(election.hold(), name="holding the Lease")
    key = asyncio.create_task(_wait_for_keys(context.cluster, context.settings), name="the operator's key")
    try:
        await asyncio.wait({holding, key}, return_when=asyncio.FIRST_COMPLETED)
        if not key.done():
            return _cause(holding)
        if key.exception() is not None:
            return _cause(key)
        newest, *older = key.result()
        sharing = asyncio.create_task(
            share(context.cluster, context.settings, newest, older=older), name="the Secret of reads"
        )
        try:
            return await _work(replace(context, token_key=newest, old_keys=tuple(older)), holding, watches)
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)
    finally:
        for task in (holding, key):
            task.cancel()
        await asyncio.gather(holding, key, return_exceptions=True)


async def _work(context: Context, holding: asyncio.Task[str], watches: Watches) -> str:
    """Fill the cache, then watch and reconcile until a task ends; return the cause."""
    settings = context.settings
    workers = Workers(
        Reconciler(context).reconcile,
        limit=settings.workers,
        backoff_cap=settings.error_backoff_cap,
        metrics=context.metrics,
        clock=context.clock,
    )
    lists = partial(_list, watches.cluster, settings.namespaces)
    resync = Resync(watches.cache, lists, workers.wake, kinds=watched_kinds(settings))
    polling = Polling(watches.cache, polled_kinds(settings), lists, watches.cluster.serves, workers.wake)
    feed = Feed(watches.cache, workers.wake, resync.request)
    tasks = {holding, filling := asyncio.create_task(resync.fill(), name="the first list")}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not filling.done() or filling.exception() is not None:
            return _cause(filling if filling.done() else holding)
        watches.watchdog.start()
        tasks = {
            holding,
            asyncio.create_task(watches.watchdog.run(), name="watchdog"),
            asyncio.create_task(_sweep(watches.cluster, settings.namespaces, workers, watches.watchdog), name="sweep"),
            asyncio.create_task(watch(settings, feed.event, watches.watchdog.delivered), name="kopf"),
            asyncio.create_task(resync.run(), name="the lists of the cache"),
            asyncio.create_task(polling.run(), name="the lists of kinds without a watch"),
            asyncio.create_task(watches.gateways.run(workers.wake, release_token(context.token_key)), name="gateways"),
        }
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return _cause(next(iter(done)))
    finally:
        await workers.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _list(cluster: KubeClient, namespaces: Sequence[str], kind: str) -> tuple[list[Object], str]:
    """Return what the watches of a kind cover, and the oldest resourceVersion of the lists."""
    lists = [await cluster.list_watched(kind, namespace) for namespace in namespaces or ("",)]
    oldest = lists[0][1]
    for _, version in lists[1:]:
        oldest = version if is_newer(oldest, version) else oldest
    return [each for things, _ in lists for each in things], oldest


def _cause(task: "asyncio.Task[Any]") -> str:
    """Return why a task that must run until a signal has ended: its result or its exception, as one sentence."""
    error = task.exception()
    if error is None:
        return str(task.result() or "")
    return f"{task.get_name()} failed: {str(error) or type(error).__name__}"


async def _wait_for_crd(cluster: ClusterClient, settings: Settings) -> None:
    """Return once LLMDeployments can be listed; log each cause of the wait once."""
    logged = ""
    while True:
        try:
            for namespace in settings.namespaces or ("",):
                await cluster.list(contract.KIND, namespace, {})
        except ClusterError as error:
            cause = _waiting_for(error)
            if cause != logged:
                log.warning("%s", cause)
                logged = cause
            await asyncio.sleep(_CRD_SECONDS)
        else:
            return


async def _wait_for_keys(cluster: ClusterClient, settings: Settings) -> tuple[bytes, ...]:
    """Return the operator's key and those before it once their Secrets can be read or created; log each cause once."""
    logged, namespace = "", settings.pod_namespace
    while True:
        try:
            key = await operator_key(cluster, namespace, settings.key_secret)
            return key, *await older_keys(cluster, namespace, settings.keyring_secret, key)
        except ClusterError as error:
            if str(error) != logged:
                log.warning("waiting for the operator's key: %s", error)
                logged = str(error)
            await asyncio.sleep(_CRD_SECONDS)


def _waiting_for(error: ClusterError) -> str:
    if error.status == 404:
        crd = f"{contract.PLURAL}.{contract.GROUP}"
        return f"waiting: the CustomResourceDefinition {crd} is not installed. `sluice crds | kubectl apply -f -`."
    return f"waiting: LLMDeployments cannot be listed: {error}"


async def _sweep(cluster: KubeClient, namespaces: Sequence[str], workers: Workers, watchdog: Watchdog) -> None:
    """List all resources every 30 s; wake those without a worker (missed by a watch); report the list to the watchdog."""
    while True:
        with contextlib.suppress(ClusterError):
            asked = watchdog.list_started()
            found = [each for name in namespaces or ("",) for each in await cluster.list_metadata(contract.KIND, name)]
            keys = {Key(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}
            watchdog.list_finished({key: str(each["metadata"]["resourceVersion"]) for key, each in keys.items()}, asked)
            for key in keys.keys() - workers.keys:
                workers.wake(key)
        await asyncio.sleep(_SWEEP_SECONDS)
