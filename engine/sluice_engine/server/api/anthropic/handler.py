"""POST /v1/messages and /v1/messages/count_tokens."""

from functools import partial

import orjson
from aiohttp import web

from sluice.httpapi.body import read_object
from sluice_engine.server.api.anthropic.encoder import MessagesFormat
from sluice_engine.server.api.anthropic.request_form import STOPS_OF_CHAT
from sluice_engine.server.api.anthropic.translate import chat_body
from sluice_engine.server.api.generation.prompt import encode
from sluice_engine.server.api.generation.translated import Translated, complete_translated
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import BadRequest


async def messages(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds as Anthropic's Messages API."""
    body, translated = await read_object(request), Translated(chat_body, STOPS_OF_CHAT)
    return await complete_translated(request, serving, body, MessagesFormat(), translated)


async def count_tokens(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """Responds with the number of tokens of the prompt."""
    body, translated = await read_object(request), Translated(partial(chat_body, counting=True), STOPS_OF_CHAT)
    serving.check_loaded()
    try:
        generation = translated.parse(body, serving.served_name)
        serving.check_task("generate")
        (prompt,) = await encode(serving, generation)
    except BadRequest as error:
        translated.rename(error)
        raise
    return serving.response(request, 200, orjson.dumps({"input_tokens": len(prompt.tokens)}))
