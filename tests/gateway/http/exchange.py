"""One exchange over a real socket: bytes as they are, and what the server does with them and with the connection."""

import contextlib
import json
import socket
import threading
from dataclasses import dataclass
from typing import Any, Final

from tests.engine.serving import Served

TOLD: Final = (
    "allow",
    "retry-after",
    "www-authenticate",
    "x-request-id",
    "content-type",
)  # headers that an error may have


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: its status, the error without its message, and which of the headers `TOLD` it has."""

    status: int
    error: tuple[Any, ...]
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The responses on one connection, the last one to a request for the models that follows if the server takes it.

    `closes`: whether the first response announces the end of the connection.
    """

    replies: tuple[Reply, ...]
    closes: bool


def exchange(served: Served, sent: bytes, *, key: str | None = "") -> Outcome:
    """Sends bytes, with the server's key in the first request unless `key` is None, then asks for the models on the same
    connection."""
    if key is not None:
        sent = served.with_key(sent)
    after = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        sender = threading.Thread(target=_send, args=(connection, sent), daemon=True)
        sender.start()
        received = _until_whole(connection, is_head := sent.startswith(b"HEAD "))
        sender.join(60)
        _send(connection, served.with_key(after))
        received += _rest(connection)
    replies, closes = list[Reply](), False
    while received:
        reply, is_last, received = _parsed(received, has_body=bool(replies) or not is_head)
        closes = is_last if not replies else closes
        replies.append(reply)
    return Outcome(tuple(replies), closes)


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the server may have answered and closed before the end
        connection.sendall(data)


def _until_whole(connection: socket.socket, is_head: bool) -> bytes:
    """The bytes up to the end of the first response, or of the connection."""
    received = b""
    while not _is_whole(received, is_head) and (part := _received(connection)):
        received += part
    return received


def _is_whole(received: bytes, is_head: bool) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    fields = {} if is_head else _fields(head)
    if "transfer-encoding" in fields:
        return body.endswith(b"0\r\n\r\n")
    return bool(end) and len(body) >= int(fields.get("content-length", 0))


def _rest(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: _received(connection), b""))


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 20)
    except ConnectionResetError:
        return b""


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _parsed(received: bytes, has_body: bool) -> tuple[Reply, bool, bytes]:
    head, _, rest = received.partition(b"\r\n\r\n")
    fields, status = _fields(head), int(head.split()[1])
    length = int(fields["content-length"]) if has_body else 0
    body, rest = rest[:length], rest[length:]
    error = ()
    if status >= 400 and body:
        found = json.loads(body)["error"]
        error = tuple(found.get(name, "absent") for name in ("type", "param", "code"))
    return (
        Reply(status, error, tuple(name for name in TOLD if name in fields)),
        fields.get("connection") == "close",
        rest,
    )
