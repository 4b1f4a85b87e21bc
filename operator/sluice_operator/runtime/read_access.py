"""The release's token of reads in an operator's process: shared with gateways and Prometheus, and asked for on its own port.

The operator that leads makes the key; one that waits for the Lease only reads it, so that Prometheus can scrape it too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sluice.auth.read_tokens import RELEASE, read_key, read_token
from sluice_operator.cluster.client import ClusterClient, ClusterError
from sluice_operator.reconcile.children.admin_token import existing_key, share_reads
from sluice_operator.settings import Settings

RETRY_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


def release_token(key: bytes) -> str:
    """Return the token for reads of operators and gateways."""
    return read_token(read_key(key), RELEASE)


class ReleaseToken:
    """The token once it is known; empty before, and then no read is answered."""

    def __init__(self) -> None:
        self.value = ""

    async def learn(
        self,
        cluster: ClusterClient,
        settings: Settings,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Return once the operator's key could be read."""
        while not self.value:
            try:
                key = await existing_key(cluster, settings.pod_namespace, settings.key_secret)
                self.value = "" if key is None else release_token(key)
            except ClusterError as error:
                log.debug("the token of reads is not known yet: %s", error)
            if not self.value:
                await sleep(RETRY_SECONDS)


async def share(
    cluster: ClusterClient,
    settings: Settings,
    key: bytes,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    older: Sequence[bytes] = (),
) -> None:
    """Return once the release's Secret of reads is of these keys; log each cause of the wait once."""
    logged = ""
    while True:
        try:
            return await share_reads(cluster, settings.pod_namespace, settings.read_secret, key, older)
        except ClusterError as error:
            if str(error) != logged:
                log.warning("gateways and Prometheus have no token of reads: %s", error)
                logged = str(error)
            await sleep(RETRY_SECONDS)
