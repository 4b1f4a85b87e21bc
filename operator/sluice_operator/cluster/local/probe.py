"""The kubelet's HTTP probe: one GET over a new connection, of which only the status code is used."""

import asyncio
from contextlib import suppress


async def probe(port: int, path: str, *, seconds: float = 2.0) -> int | None:
    """Return the status of `GET path` on 127.0.0.1; None without a valid response within `seconds`."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            status_line = await reader.readline()
        return int(status_line.split(b" ", 2)[1])
    except (OSError, TimeoutError, ValueError, IndexError):
        return None
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds):
                    await writer.wait_closed()
