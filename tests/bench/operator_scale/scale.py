"""The measurement: an operator brings the fleet up; a second one finds it running, and is measured."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from sluice_kube.api import connect
from tests.bench.operator_scale.cluster import Cluster
from tests.bench.operator_scale.objects import PODS_PER_RESOURCE
from tests.bench.operator_scale.processes import (
    INTERVAL,
    Operator,
    Responder,
    local_addresses,
    operator,
    recorded_metrics,
    responder,
    restarted_operator,
)
from tests.bench.report.row import Report, Row, at_most

SCALE: Final = 1000
FIRST_PASS_SECONDS: Final = 120.0
REQUESTS_PER_SECOND: Final = 5.0
MEGABYTES: Final = 300.0
REACTION_SECONDS: Final = 2.0
BUSY_PERCENT: Final = 60.0
_STALL_SECONDS: Final = 120.0  # without another ready pod
_SETTLE_SECONDS: Final = 2 * INTERVAL  # two passes
_STEADY_SECONDS: Final = 4 * INTERVAL
_CHANGES: Final = 5
_POD_CIDR: Final = "10.246.0.0/16"


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of the table."""
    for log in out.glob("bench-operator*.log"):
        log.unlink()
    return asyncio.run(_report(out, say, int(os.environ.get("SCALE") or SCALE)))


async def _report(out: Path, say: Callable[[str], None], scale: int) -> Report:
    metrics, kubeconfig = out / "engine-metrics.txt", out / "bench-operator.kubeconfig"
    say("recording the metrics of an engine")
    metrics.write_bytes(await recorded_metrics(out / "engine-metrics.log"))
    async with AsyncExitStack() as stack:
        cluster = Cluster(await stack.enter_async_context(await connect()))
        stack.push_async_callback(cluster.remove, scale)
        await cluster.prepare(scale)
        alive = asyncio.create_task(cluster.keep_nodes_alive(scale))
        stack.callback(alive.cancel)
        say(f"creating {scale} LLMDeployments")
        await cluster.create_resources(scale)
        kubeconfig.write_text(await cluster.kubeconfig())
        await stack.enter_async_context(local_addresses(os.environ.get("POD_CIDR") or _POD_CIDR))
        answers = await stack.enter_async_context(responder(metrics))
        async with restarted_operator(kubeconfig, out / "bench-operator-first.log"):
            started = await _started(cluster, scale * PODS_PER_RESOURCE, say)
            await asyncio.sleep(_SETTLE_SECONDS)
        async with operator(kubeconfig, out / "bench-operator.log") as measured:
            rows = await _measure(cluster, measured, answers, scale, say)
    what = f"{scale} LLMDeployments, {scale * PODS_PER_RESOURCE} pods"
    return Report([Row(f"{what}: created and ready after", f"{started:.0f} s"), *rows])


async def _started(cluster: Cluster, pods: int, say: Callable[[str], None]) -> float:
    """Seconds until all pods are ready. Raises TimeoutError."""
    begun = moved = time.monotonic()
    before = 0
    while (ready := await cluster.ready_pods()) < pods:
        if ready > before:
            moved = time.monotonic()
        if time.monotonic() - moved > _STALL_SECONDS:
            raise TimeoutError(f"{ready} of {pods} pods are ready, no more for {_STALL_SECONDS:.0f} s: does kwok run?")
        before = ready
        say(f"{ready} of {pods} pods are ready")
        await asyncio.sleep(5)
    return time.monotonic() - begun


async def _measure(
    cluster: Cluster, measured: Operator, answers: Responder, scale: int, say: Callable[[str], None]
) -> list[Row]:
    begun, asked = time.monotonic(), await cluster.requests()
    most, resources, passes = 0.0, 0, 0
    # A resource counts from the beginning of its first pass; as many passes must have ended.
    while min(resources, passes) < scale:
        resources, passes = await measured.progress()
        most = max(most, measured.memory())
        await asyncio.sleep(0.25)
    first, first_asked, first_busy = time.monotonic() - begun, await cluster.requests() - asked, measured.busy()
    say(f"the first pass took {first:.1f} s")
    await asyncio.sleep(_SETTLE_SECONDS)
    asked, busy, scrapes, limits = await cluster.requests(), measured.busy(), answers.scrapes, answers.limits
    passes, begun = await measured.passes(), time.monotonic()
    while time.monotonic() - begun < _STEADY_SECONDS:
        most = max(most, measured.memory())
        await asyncio.sleep(1)
    seconds = time.monotonic() - begun
    share = 100 * (measured.busy() - busy) / seconds
    requests = (await cluster.requests() - asked) / seconds
    scraped, sent = (answers.scrapes - scrapes) / seconds, (answers.limits - limits) / seconds
    done = (await measured.passes() - passes) / seconds
    say("changing one resource after another")
    reactions = [await _reaction(cluster, number * (scale // _CHANGES)) for number in range(_CHANGES)]
    return [
        at_most("first pass over all resources", first, FIRST_PASS_SECONDS, " s"),
        Row("requests to the API server until then", f"{first_asked:.0f}, {first_busy:.0f} s of a core"),
        at_most(f"requests to the API server in steady state, {seconds:.0f} s", requests, REQUESTS_PER_SECOND, "/s"),
        Row("passes, scrapes, limits sent in steady state", f"{done:.1f}/s, {scraped:.1f}/s, {sent:.1f}/s"),
        at_most("resident memory, the most", most, MEGABYTES, " MB"),
        at_most("busy share of one core in steady state", share, BUSY_PERCENT, " %"),
        at_most(
            f"a change of the spec until the Deployment follows, slowest of {_CHANGES}",
            max(reactions),
            REACTION_SECONDS,
            " s",
        ),
    ]


async def _reaction(cluster: Cluster, number: int) -> float:
    """Seconds from a change of the replica bounds to the Deployment's count."""
    wanted = await cluster.replicas(number) + 1
    begun = time.monotonic()
    await cluster.scale(number, wanted)
    while await cluster.replicas(number) != wanted:
        if time.monotonic() - begun > 10 * REACTION_SECONDS:
            break
        await asyncio.sleep(0.02)
    return time.monotonic() - begun
