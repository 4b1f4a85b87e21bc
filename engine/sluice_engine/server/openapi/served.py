"""GET /openapi.json: the committed document."""

from pathlib import Path
from typing import Final

from aiohttp import web

from sluice_engine.server.context import Serving

PATH: Final = Path(__file__).with_name("openapi.json")
DOCUMENT: Final = PATH.read_bytes() if PATH.is_file() else b"{}"


async def get_document(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds with the document, which needs no key."""
    return serving.response(request, 200, DOCUMENT)
