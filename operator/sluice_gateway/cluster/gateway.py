"""A gateway over the engines of a cluster: connection, watches, catalog and server, as one context."""

import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from sluice_gateway.cluster.catalog import ClusterCatalog
from sluice_gateway.cluster.directory import Directory
from sluice_gateway.cluster.discovery import Discovery
from sluice_gateway.cluster.peers import watched_peers
from sluice_gateway.server import Gateway, GatewayOptions
from sluice_kube.api import connect

log = logging.getLogger("sluice.gateway")


@asynccontextmanager
async def cluster_gateway(
    namespaces: Sequence[str], options: GatewayOptions, service: str | None = None
) -> AsyncIterator[Gateway]:
    """Serve the LLMDeployments of these namespaces, of all if there are none. Raises ClusterError without a cluster.

    `service`: "namespace/name" of the gateways' own Service, whose ready pods share the rates of the key file and read each
    other's use of them, and whose endpoints say in which zone this one is.

    It is ready once everything has been listed; an API server that is away then changes nothing.
    """
    directory = Directory()
    async with await connect() as client, AsyncExitStack() as stack:
        discovery = Discovery(client, namespaces, directory)
        catalog = ClusterCatalog(directory, lambda: "" if discovery.synced else "the first answer of the API server")
        gateway = Gateway(directory.backends, options, catalog=catalog, canaries=directory.canaries)
        async with gateway, discovery.running():
            log.info("models of %s", f"the namespaces {', '.join(namespaces)}" if namespaces else "all namespaces")
            if service is not None:
                peers = watched_peers(client, service, gateway.shared_by, socket.gethostname(), directory.set_zone)
                await stack.enter_async_context(peers)
            yield gateway
