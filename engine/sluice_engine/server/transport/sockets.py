"""Binds the listening sockets before any slow work, so that a taken port is reported at once with the option to change."""

import errno
import ipaddress
import socket

from sluice_engine.server.options import OptionInvalid


class PortTaken(OptionInvalid):
    """Another process listens on the port."""


def bind(host: str, port: int, option: str) -> socket.socket:
    """Returns a bound socket. Raises PortTaken, or OptionInvalid for an unusable host or port."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise OptionInvalid(f"--host {host!r} is not an address of this machine ({error}).") from error
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"Port {port} on {host} is taken; choose another with {option}.") from error
        if error.errno == errno.EACCES:
            raise OptionInvalid(f"Port {port} needs privileges; choose one above 1023 with {option}.") from error
        raise OptionInvalid(f"--host {host!r} cannot be listened on: {error.strerror}.") from error
    listener.setblocking(False)
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether the socket is bound to a loopback address."""
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback
