"""POST /v1/responses."""

from aiohttp import web

from sluice.httpapi.body import read_object
from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.generation.completions import complete
from sluice_engine.server.api.responses.encoder import ResponsesFormat
from sluice_engine.server.api.responses.translate import chat_body, renamed
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import BadRequest


async def responses(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds as OpenAI's Responses API; nothing is stored."""
    body = await read_object(request)
    try:
        return await complete(request, serving, body, ResponsesFormat(body), _check)
    except BadRequest as error:
        raise renamed(error) from error.__cause__


def _check(body: Object, served_name: str) -> request_schema.Generation:
    return request_schema.chat(chat_body(body), served_name)
