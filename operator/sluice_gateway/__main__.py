"""The process of `sluice gateway`, which starts it: `python -m sluice_gateway ARGUMENTS`, as JSON.

Exits 0 after a drain, 1 if the drain's budget was spent or a second signal came before all requests were answered, and 2 for
files or addresses that cannot be used, with one sentence on stderr.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from sluice import contract, logs, tracing
from sluice.httpapi.hosts import LOOPBACK
from sluice.log_batches import write_together
from sluice_gateway.arguments import Arguments, BadSource, parse
from sluice_gateway.keys.gatekeeper import KeyOptions, KeysInvalid
from sluice_gateway.process import DrainTimes, run
from sluice_gateway.queueing import QueueLimits
from sluice_gateway.replicas.kv_feeds import FeedTimes
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_gateway.replicas.static import parse_backend
from sluice_gateway.server import Gateway, GatewayOptions, PortTaken
from sluice_kube.errors import ClusterError


def main(text: str) -> int:
    """Serve until a signal; returns the exit code."""
    logs.configure()
    write_together("sluice.gateway.request")
    arguments = parse(text)
    try:
        return run(_opened(arguments), DrainTimes(arguments.grace_seconds, arguments.drain_seconds))
    except (BadSource, ClusterError, KeysInvalid, PortTaken) as error:
        sys.stderr.write(f"{error}\n")
        return contract.EXIT_USAGE


def _opened(arguments: Arguments) -> Callable[[], AbstractAsyncContextManager[Gateway]]:
    """What opens the gateway. Raises BadSource."""
    options = _options(arguments)
    if arguments.backends:
        found = list(dict.fromkeys(map(parse_backend, arguments.backends)))
        return lambda: Gateway(lambda: found, options)
    try:
        from sluice_gateway.cluster.gateway import cluster_gateway
    except ModuleNotFoundError as error:
        raise BadSource(f"a gateway of a cluster needs {error.name}: pip install 'sluice[operator]'") from error
    return lambda: cluster_gateway(list(dict.fromkeys(arguments.namespaces)), options, arguments.service)


def _options(arguments: Arguments) -> GatewayOptions:
    keys, token, reads = arguments.api_keys_file, arguments.engine_token_file, arguments.read_key_file
    backends = arguments.backend_read_token_file
    return GatewayOptions(
        arguments.host,
        arguments.port,
        arguments.admin_port,
        arguments.policy,
        arguments.session_header,
        any_host=arguments.host not in LOOPBACK,
        queue=QueueLimits(arguments.queue_requests, wait_seconds=arguments.queue_seconds)
        if arguments.queue_requests
        else None,
        keys=KeyOptions(
            None if keys is None else Path(keys), None if token is None else Path(token), arguments.gateways
        ),
        tracing=tracing.from_environment("sluice-gateway"),
        reads=ReadOptions(
            None if reads is None else Path(reads),
            is_guarded=arguments.is_read_guarded,
            token=None if backends is None else Path(backends),
        ),
        kv_feeds=FeedTimes() if arguments.is_following_kv else None,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
