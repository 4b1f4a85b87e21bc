"""`sluice gateway`: one URL in front of the engines of a cluster, or of engines that run anywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sluice import contract
from sluice.commands.log_options import LogFormat, LogLevel, configure_logs


class Policy(StrEnum):
    """How the gateway chooses a replica."""

    PrefixAware = "PrefixAware"
    LeastLoaded = "LeastLoaded"
    RoundRobin = "RoundRobin"


class MetricsAuth(StrEnum):
    """Who reads the admin port: all that reach it, or of those the ones with the token."""

    policy = "policy"
    token = "token"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("gateway")(gateway)


def gateway(
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="An engine, http://HOST:PORT. Its load is read from the next port, or from the second address of "
            "http://HOST:PORT,http://HOST:ADMIN_PORT. May be repeated.",
            metavar="URL",
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="Serve the LLMDeployments of this namespace of the cluster. May be repeated."),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", help="Serve the LLMDeployments of all namespaces of the cluster.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for clients; 0 takes a free one.")] = 8080,
    admin_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of /metrics, /livez and /readyz; 0 takes a free one.")
    ] = contract.GATEWAY_ADMIN_PORT,
    policy: Annotated[
        Policy,
        typer.Option(
            help="PrefixAware: least predicted time to first token, preferring cached prefixes. LeastLoaded: fewest "
            "requests. RoundRobin: in turn. spec.routing.policy of an LLMDeployment overrides it."
        ),
    ] = Policy.PrefixAware,
    session_header: Annotated[
        str | None,
        typer.Option(
            help="Requests with the same value of this header go to the same replica. spec.routing.sessionHeader of an "
            "LLMDeployment overrides it."
        ),
    ] = None,
    queue_requests: Annotated[
        int,
        typer.Option(
            min=0, max=8192, help="Requests of a model that wait while all replicas are at their limits; 0: none."
        ),
    ] = 1024,
    queue_seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Longest predicted wait of a request that is accepted.")
    ] = 30.0,
    api_keys_file: Annotated[
        Path | None,
        typer.Option(
            help="YAML list of API keys, the engines' own file; reloaded on change. [no key is needed]", metavar="FILE"
        ),
    ] = None,
    engine_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token of the engines' --gateway-token-file: they take tenants from this gateway.",
            metavar="FILE",
        ),
    ] = None,
    read_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the key from which the tokens for reads of the engines' admin ports derive, and the one that the "
            "operator reads /held with; it writes the key into a Secret, which may come later.",
            metavar="FILE",
        ),
    ] = None,
    backend_read_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token of the --read-token-file of the engines in --backend; a new token applies within a "
            "second.",
            metavar="FILE",
        ),
    ] = None,
    kv_events: Annotated[
        bool,
        typer.Option(
            "--kv-events",
            help="Follow /kv_events of the engines' admin ports, so that prefixes which an engine has evicted are known at "
            "once. For PrefixAware. [caches are estimated]",
        ),
    ] = False,
    metrics_auth: Annotated[
        MetricsAuth,
        typer.Option(help="Whether reads of the admin port, except probes, need the token of --read-key-file."),
    ] = MetricsAuth.policy,
    gateways: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Gateways that share the engines and the rates of the key file; with --service, until it is known.",
        ),
    ] = 1,
    service: Annotated[
        str | None,
        typer.Option(
            help="Service of the gateways in the cluster: its endpoints say in which zone this one is, and which ready pods "
            "share the rates of the key file and read each other's use of them.",
            metavar="NAMESPACE/NAME",
        ),
    ] = None,
    grace_seconds: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds after SIGTERM in which new requests are still served.")
    ] = contract.DRAIN_GRACE_SECONDS,
    drain_seconds: Annotated[
        float, typer.Option(min=0, max=86400, help="Seconds after that for the requests in flight to complete.")
    ] = 300.0,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Route OpenAI requests to engines by their load and their prefix caches.

    The engines are those of --backend, or those of the LLMDeployments in --namespace or --all-namespaces of the cluster of
    this pod or of KUBECONFIG. Exits 0 after SIGTERM or Ctrl-C, once the requests in flight have completed; 2 for bad
    options, a taken port or no cluster.
    """
    from sluice_gateway.arguments import Arguments, BadSource, become, check_source
    from sluice_gateway.replicas.static import BadBackend

    configure_logs(log_format, log_level)
    arguments = Arguments(
        backends=tuple(backend or ()), namespaces=tuple(namespace or ()), service=service,
        host=host, port=port, admin_port=admin_port, policy=policy.value, session_header=session_header,
        queue_requests=queue_requests, queue_seconds=queue_seconds,
        api_keys_file=None if api_keys_file is None else str(api_keys_file),
        engine_token_file=None if engine_token_file is None else str(engine_token_file), gateways=gateways,
        read_key_file=None if read_key_file is None else str(read_key_file),
        backend_read_token_file=None if backend_read_token_file is None else str(backend_read_token_file),
        is_following_kv=kv_events,
        is_read_guarded=metrics_auth is MetricsAuth.token,
        grace_seconds=grace_seconds, drain_seconds=drain_seconds,
    )  # fmt: skip
    try:
        check_source(arguments, all_namespaces=all_namespaces)
    except (BadBackend, BadSource) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error
    become(arguments)
