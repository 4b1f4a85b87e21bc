"""A response whose body follows piece by piece. What it saves counts once per event or per stream: a system call, a timer."""

from typing import Final

from aiohttp import web
from aiohttp.http_writer import StreamWriter

FREE_BYTES: Final = 32 * 1024  # that an empty buffer of a transport takes: writers wait from 64 KiB


class StreamedResponse(web.StreamResponse):
    """Its headers are sent with the first bytes of its body: one packet, for which the client wakes once."""

    _send_headers_immediately = False  # aiohttp's switch, which its Response sets too


def has_begun(request: web.BaseRequest) -> bool:
    """Whether a response to the request has begun, so that no other one can take its place."""
    writer = request.writer
    return writer.output_size > 0 or (isinstance(writer, StreamWriter) and writer.chunked)


def takes(request: web.BaseRequest, size: int) -> bool:
    """Whether `size` bytes can be written to the client without a wait, so that the write needs no deadline."""
    transport = request.transport
    return size <= FREE_BYTES and transport is not None and transport.get_write_buffer_size() == 0
