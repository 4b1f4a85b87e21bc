"""POST /v1/responses."""

from aiohttp import web

from sluice.httpapi.body import read_object
from sluice_engine.server.api.generation.translated import Translated, complete_translated
from sluice_engine.server.api.responses.encoder import ResponsesFormat
from sluice_engine.server.api.responses.translate import chat_body
from sluice_engine.server.context import Serving


async def responses(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds as OpenAI's Responses API; nothing is stored."""
    body = await read_object(request)
    return await complete_translated(request, serving, body, ResponsesFormat(body), Translated(chat_body))
