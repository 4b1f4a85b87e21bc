"""The operator's first writes as the leader, on the loop's own time."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sluice import contract
from sluice_operator.cluster.cache import ObjectCache
from sluice_operator.cluster.client import ClusterClient, ClusterError, Object
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.cluster.lease import KubeLease
from sluice_operator.engines.client import Scraper
from sluice_operator.gateways.watch import Gateways
from sluice_operator.reconcile.context import Context
from sluice_operator.runtime.leader_election import Election, Times
from sluice_operator.runtime.process import Watches, _lead, _until_stopped
from sluice_operator.runtime.watchdog import Watchdog
from sluice_operator.settings import Settings
from tests.operator.runtime.test_leader_election_expiry import Shelf, SlowLink
from tests.operator.virtual_time import run_virtual


@dataclass
class LeasedCluster:
    """An empty cluster that takes writes only while the Lease is held, as `KubeClient` does."""

    election: Election
    created: list[Object] = field(default_factory=list)
    written: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(self, *_: Any) -> list[Object]:
        return []

    async def get(self, *_: Any) -> Object | None:
        return None

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object:
        if self.election.remaining() <= 0:
            raise ClusterError("not sent: this process no longer holds the Lease")
        self.created.append(manifest)
        self.written.set()
        await asyncio.Event().wait()  # the rest of the operator does not matter here
        raise AssertionError


def watches(clock: Callable[[], float]) -> Watches:
    return Watches(ObjectCache(()), cast(KubeClient, None), Watchdog(clock=clock), Gateways(None, "", ""))


def test_the_key_is_created_after_the_lease_is_acquired() -> None:
    async def lead() -> list[Object]:
        loop = asyncio.get_running_loop()
        link = cast(KubeLease, SlowLink(Shelf(), [0.1]))
        election = Election(link, "a", Times(), clock=loop.time)
        cluster = LeasedCluster(election)
        settings = Settings(engine_image="engine:1", pod_namespace="sluice-system")
        context = Context(cast(ClusterClient, cluster), cast(Scraper, None), settings)
        leading = asyncio.create_task(_lead(context, election, watches(loop.time)))
        async with asyncio.timeout(60):
            await cluster.written.wait()
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
        return cluster.created

    (secret,) = run_virtual(lead())
    assert (secret["kind"], secret["metadata"]["namespace"]) == ("Secret", "sluice-system")


class FailingElection(Election):
    """A candidate whose task fails while it holds the Lease."""

    async def hold(self) -> str:
        raise RuntimeError("Session is closed")


class NoSecrets(LeasedCluster):
    """A cluster that rejects the operator's key, so that the operator waits for it."""

    async def get(self, *_: Any) -> Object | None:
        raise ClusterError("secrets is forbidden", status=403)


class BrokenSecrets(LeasedCluster):
    """A cluster client that fails in a way that no rule covers."""

    async def get(self, *_: Any) -> Object | None:
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("election_type", "cluster_type", "sentence"),
    [
        (FailingElection, NoSecrets, "the operator ends: holding the Lease failed: Session is closed"),
        (Election, BrokenSecrets, "the operator ends: the operator's key failed: broken"),
    ],
)
def test_a_task_that_fails_before_the_work_ends_the_process_with_one_sentence(
    election_type: type[Election],
    cluster_type: type[LeasedCluster],
    sentence: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def lead() -> int:
        loop = asyncio.get_running_loop()
        election = election_type(cast(KubeLease, SlowLink(Shelf(), [0.1])), "a", Times(), clock=loop.time)
        context = Context(cast(ClusterClient, cluster_type(election)), cast(Scraper, None), Settings())
        return await _until_stopped(asyncio.Event(), _lead(context, election, watches(loop.time)))

    assert run_virtual(lead()) == contract.EXIT_FAILED
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.getMessage() == sentence and error.exc_info is None
