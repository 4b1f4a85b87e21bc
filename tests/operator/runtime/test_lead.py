"""The operator's first writes as the leader, on the loop's own time."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, cast

from sluice_operator.cluster.client import Object, World, WorldError
from sluice_operator.engines.client import Scraper
from sluice_operator.reconcile.memory import Context
from sluice_operator.runtime.leader_election import Election, KubeLease, Times
from sluice_operator.runtime.process import _lead
from sluice_operator.runtime.settings import Settings
from sluice_operator.runtime.watchdog import Watchdog
from tests.operator.runtime.test_leader_election_expiry import Shelf, SlowLink
from tests.operator.virtual_time import run_virtual


@dataclass
class LeasedCluster:
    """An empty cluster that takes writes only while the Lease is held, as `KubeWorld` does."""

    election: Election
    created: list[Object] = field(default_factory=list)
    written: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(self, *_: Any) -> list[Object]:
        return []

    async def get(self, *_: Any) -> Object | None:
        return None

    async def create(self, manifest: Object) -> Object:
        if self.election.remaining() <= 0:
            raise WorldError("not sent: this process no longer holds the Lease")
        self.created.append(manifest)
        self.written.set()
        await asyncio.Event().wait()  # the rest of the operator does not matter here
        raise AssertionError


def test_the_key_is_created_after_the_lease_is_acquired() -> None:
    async def lead() -> list[Object]:
        loop = asyncio.get_running_loop()
        link = cast(KubeLease, SlowLink(Shelf(), [0.1]))
        election = Election(link, "a", Times(), clock=loop.time)
        cluster = LeasedCluster(election)
        settings = Settings(engine_image="engine:1", pod_namespace="sluice-system")
        context = Context(cast(World, cluster), cast(Scraper, None), settings)
        leading = asyncio.create_task(_lead(context, election, Watchdog(clock=loop.time)))
        async with asyncio.timeout(60):
            await cluster.written.wait()
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
        return cluster.created

    (secret,) = run_virtual(lead())
    assert (secret["kind"], secret["metadata"]["namespace"]) == ("Secret", "sluice-system")
