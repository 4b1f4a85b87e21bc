"""The operator's process from start to end: health first, then the CRD, the Lease, and only as its holder the work.

Exactly one of its tasks ends first, and that says how the process ends: a signal with 0, anything else with 1 so
that Kubernetes starts it again.
"""

import asyncio
import contextlib
import functools
import logging
import signal
from typing import Final

from sluice import contract
from sluice_operator.context import Context
from sluice_operator.handlers import watch
from sluice_operator.health import Health
from sluice_operator.kube import KubeWorld, connect
from sluice_operator.lease import Election, KubeLease
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.reconcile import reconcile
from sluice_operator.scrape import HttpScraper
from sluice_operator.settings import Settings
from sluice_operator.watchdog import Watchdog
from sluice_operator.workers import Workers
from sluice_operator.world import Key, World, WorldError

log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 30.0
_CRD_SECONDS: Final = 5.0


def main(settings: Settings) -> int:
    """Run until a signal or a fault; the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        return asyncio.run(run(settings))
    except (WorldError, OSError) as error:
        log.error("%s", error)
        return contract.EXIT_FAILED


async def run(settings: Settings) -> int:
    """The exit code. Raises WorldError without a cluster, OSError where the health port is taken."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = OperatorMetrics()
    watchdog = Watchdog(metrics=metrics)
    health = Health(watchdog.verdict, metrics)
    async with await connect() as client, HttpScraper(settings.scrape_timeout, settings.scrape_concurrency) as scraper:
        await health.start(settings.health_port)
        election = Election(KubeLease(client, settings.pod_namespace), settings.pod_name)
        context = Context(KubeWorld(client), scraper, settings, metrics=metrics)
        try:
            return await _until_stopped(stop, _lead(context, election, watchdog))
        finally:
            metrics.leads(False)
            await election.release()
            await health.close()


async def _until_stopped(stop: asyncio.Event, work: "asyncio._CoroutineLike[str]") -> int:
    """Run the work until it ends or a signal comes."""
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


async def _lead(context: Context, election: Election, watchdog: Watchdog) -> str:
    """Everything from waiting for the CRD on; why it ended, empty after a signal."""
    await _wait_for_crd(context.world, context.settings)
    await election.acquire()
    context.metrics.leads(True)
    settings = context.settings
    workers = Workers(
        functools.partial(_reconcile, context=context),
        limit=settings.workers,
        backoff_cap=settings.error_backoff_cap,
        metrics=context.metrics,
    )
    watchdog.start()
    tasks = {
        asyncio.create_task(election.hold(), name="holding the Lease"),
        asyncio.create_task(watchdog.run(), name="watchdog"),
        asyncio.create_task(_sweep(context, workers, watchdog), name="sweep"),
        asyncio.create_task(watch(settings, workers.wake, watchdog.heard), name="kopf"),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(iter(done))
        if error := first.exception():
            return f"{first.get_name()} failed: {error}"
        return str(first.result() or "")
    finally:
        await workers.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _reconcile(key: Key, context: Context) -> float:
    return await reconcile(key, context)


async def _wait_for_crd(world: World, settings: Settings) -> None:
    """Return once LLMDeployments can be listed; says what is missing, once per cause."""
    said = ""
    while True:
        try:
            await world.list(contract.KIND, settings.namespace, {})
        except WorldError as error:
            cause = _waiting_for(error)
            if cause != said:
                log.warning("%s", cause)
                said = cause
            await asyncio.sleep(_CRD_SECONDS)
        else:
            return


def _waiting_for(error: WorldError) -> str:
    if error.status == 404:
        crd = f"{contract.PLURAL}.{contract.GROUP}"
        return f"waiting: the CustomResourceDefinition {crd} is not installed. `sluice crds | kubectl apply -f -`."
    return f"waiting: LLMDeployments cannot be listed: {error}"


async def _sweep(context: Context, workers: Workers, watchdog: Watchdog) -> None:
    """List everything now and then: finds what a watch missed, and tells the watchdog."""
    while True:
        with contextlib.suppress(WorldError):
            asked = watchdog.asks()
            found = await context.world.list(contract.KIND, context.settings.namespace, {})
            keys = {Key(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}
            watchdog.listed({key: str(each["metadata"]["resourceVersion"]) for key, each in keys.items()}, asked)
            for key in keys.keys() - workers.keys:
                workers.wake(key)
        await asyncio.sleep(_SWEEP_SECONDS)
