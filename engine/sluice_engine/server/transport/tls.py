"""TLS on the data port by a mounted certificate, which may be replaced while the server runs."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Final

from aiohttp import web

from sluice.mounted_files import MountedFiles

HANDSHAKE_SECONDS: Final = 10.0  # an unfinished handshake counts towards no connection limit, so it must not last


def certificate_files(certificate: Path, key: Path) -> MountedFiles[ssl.SSLContext]:
    """Returns the two PEM files as one value: the context for new connections."""
    return MountedFiles((certificate, key), lambda _: _context(certificate, key))


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Raises ValueError if the files are no certificate with its key, also while a replacement is half done."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password="")  # without a password OpenSSL would ask on the terminal
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ValueError(
            f"it and {key} are not a certificate chain and its unencrypted private key in PEM ({reason})"
        ) from error
    return context


class TlsEndpoint:
    """The server's side of TLS: one listening context that hands each new connection to the current certificate."""

    def __init__(self, current: ssl.SSLContext) -> None:
        self.current = current
        self.listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listening.minimum_version = current.minimum_version
        self.listening.set_alpn_protocols(["http/1.1"])
        self.listening.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by OpenSSL in each handshake, with or without a server name."""
        connection.context = self.current


class TlsSite(web.BaseSite):
    """As aiohttp's `SockSite`, with a deadline for the handshake."""

    def __init__(self, runner: web.ServerRunner, listener: socket.socket, endpoint: TlsEndpoint, backlog: int) -> None:
        super().__init__(runner, ssl_context=endpoint.listening, backlog=backlog)
        self._listener = listener

    @property
    def name(self) -> str:
        """The site's URL."""
        host, port = self._listener.getsockname()[:2]
        return f"https://{host}:{port}"

    async def start(self) -> None:
        """Starts listening."""
        await super().start()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner has not been set up")
        self._server = await asyncio.get_running_loop().create_server(
            server,
            sock=self._listener,
            ssl=self._ssl_context,
            backlog=self._backlog,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
