"""What `sluice gateway` is told, as a value that becomes the arguments of the process that serves.

The command line and the serving process are one process with two images: the libraries of the command line take as much
memory as 600 open streams, and are needed for a moment only.
"""

import os
import sys
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from sluice import contract
from sluice_gateway.replicas.static import parse_backend
from sluice_gateway.routing import PolicyName

MODULE: Final = "sluice_gateway"


class BadSource(ValueError):
    """The options name no engines, or name them in two ways, or a header of the gateway's own. The message says what to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The options of `sluice gateway`, whose help describes them and which has their defaults. Empty `namespaces` without
    `backends`: all namespaces.
    """

    backends: tuple[str, ...]
    namespaces: tuple[str, ...]
    service: str | None
    host: str
    port: int
    admin_port: int
    policy: PolicyName
    session_header: str | None
    queue_requests: int
    queue_seconds: float
    api_keys_file: str | None
    engine_token_file: str | None
    read_key_file: str | None
    backend_read_token_file: str | None
    is_read_guarded: bool
    is_following_kv: bool
    gateways: int
    grace_seconds: float
    drain_seconds: float


def check_source(arguments: Arguments, *, all_namespaces: bool) -> None:
    """Raises BadSource and BadBackend."""
    backends, namespaces, service = arguments.backends, arguments.namespaces, arguments.service
    if bool(backends) + bool(namespaces) + all_namespaces != 1:
        raise BadSource("give either --backend, or --namespace, or --all-namespaces: they say where the engines are")
    if (arguments.session_header or "").lower().startswith(contract.HEADER_PREFIX):
        raise BadSource(
            f"--session-header must not begin with {contract.HEADER_PREFIX}: such headers are the gateway's own"
        )
    if service is not None and (backends or not all(service.partition("/"))):
        raise BadSource(
            "--service is NAMESPACE/NAME of the gateways' Service, and needs --namespace or --all-namespaces"
        )
    if arguments.backend_read_token_file is not None and not backends:
        raise BadSource(
            "--backend-read-token-file needs --backend: the engines of a cluster have tokens of their own, which derive from "
            "--read-key-file"
        )
    for backend in backends:
        parse_backend(backend)


def become(arguments: Arguments) -> NoReturn:
    """Replace this process by the one that serves; its id and its environment stay."""
    sys.stdout.flush()
    sys.stderr.flush()
    text = msgspec.json.encode(arguments).decode()
    os.execv(sys.executable, [sys.executable, "-P", "-m", MODULE, text])  # noqa: S606 - no shell is meant


def parse(text: str) -> Arguments:
    """What `become` has written. Raises ValueError."""
    return msgspec.json.decode(text, type=Arguments)
