"""Responds to a body of another API, which is translated into one of a chat; its errors name the fields that were sent."""

from collections.abc import Callable

from aiohttp import web
from msgspec import structs

from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.generation.completions import complete
from sluice_engine.server.api.generation.sampling_fields import STOP
from sluice_engine.server.api.generation.sse import ResponseFormat
from sluice_engine.server.api.origins import Origins
from sluice_engine.server.api.request_fields import Strings
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import BadRequest

Translate = Callable[[Object], tuple[Object, Origins]]


class Translated:
    """One body of another API. `translate` raises errors that name the client's fields already; `stop` reads the stop
    strings of the chat.
    """

    def __init__(self, translate: Translate, stop: Strings = STOP) -> None:
        self._translate = translate
        self._stop = stop
        self._origins = Origins()

    def parse(self, body: Object, served_name: str) -> request_schema.Generation:
        """Parses the body as a chat. Raises BadRequest, Unsupported, NotFound."""
        request_schema.check_model(body, served_name)  # first, as a gateway does, which chooses replicas by it
        chat, self._origins = self._translate(body)
        generation = request_schema.chat(chat, served_name, self._stop)
        return structs.replace(generation, max_tokens_param=self._origins.of(generation.max_tokens_param))

    def rename(self, error: BadRequest) -> None:
        """Lets an error name the client's field."""
        self._origins.rename(error)


async def complete_translated(
    request: web.BaseRequest, serving: Serving, body: Object, response_format: ResponseFormat, translated: Translated
) -> web.StreamResponse:
    """Responds to a body in a format. Raises ApiError."""
    try:
        return await complete(request, serving, body, response_format, translated.parse)
    except BadRequest as error:
        translated.rename(error)
        raise
