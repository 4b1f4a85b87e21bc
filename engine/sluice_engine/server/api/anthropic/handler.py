"""POST /v1/messages and /v1/messages/count_tokens."""

import orjson
from aiohttp import web

from sluice.httpapi.body import read_object
from sluice_engine.server.api.anthropic.encoder import MessagesFormat
from sluice_engine.server.api.anthropic.translate import chat_body
from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.generation.completions import complete
from sluice_engine.server.api.generation.prompt import encode
from sluice_engine.server.context import Serving


async def messages(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds as Anthropic's Messages API."""
    return await complete(request, serving, await read_object(request), MessagesFormat(), _check)


async def count_tokens(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds with the number of tokens of the prompt."""
    body = await read_object(request)
    serving.check_loaded()
    generation = request_schema.chat(chat_body(body, counting=True), serving.served_name)
    serving.check_task("generate")
    (prompt,) = await encode(serving, generation)
    return serving.response(request, 200, orjson.dumps({"input_tokens": len(prompt.tokens)}))


def _check(body: Object, served_name: str) -> request_schema.Generation:
    return request_schema.chat(chat_body(body), served_name)
