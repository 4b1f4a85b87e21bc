"""Replicas given by address, as `--backend` does."""

from urllib.parse import urlsplit

from sluice_gateway.replicas.backend import Backend


class BadBackend(ValueError):
    """The text names no replica. The message says what is expected."""


def parse_backend(text: str) -> Backend:
    """A replica from "URL" or "URL,ADMIN_URL"; without the second, the admin port is the one after the data port.

    Raises BadBackend.
    """
    url, _, admin = text.partition(",")
    host, port = _address(url, text)
    if admin:
        admin_host, admin_port = _address(admin, text)
    else:
        admin_host, admin_port = host, port + 1
    return Backend(f"{host}:{port}", host, port, f"http://{admin_host}:{admin_port}")


def _address(url: str, text: str) -> tuple[str, int]:
    expected = (
        f"{text!r} is no replica: write http://HOST:PORT, or http://HOST:PORT,http://HOST:ADMIN_PORT where the admin port "
        "is not the next one"
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadBackend(expected) from error
    if parts.scheme != "http" or not host or port is None or parts.path not in ("", "/") or parts.query:
        raise BadBackend(expected)
    return (f"[{host}]" if ":" in host else host), port
