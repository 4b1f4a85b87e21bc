"""POST /tokenize and /detokenize show how the model's tokenizer reads a text, with the fields of vLLM's API."""

from typing import Final

import orjson
from aiohttp import web

from sluice.httpapi.body import MAX_BODY_BYTES, read_object
from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.generation import tool_fields
from sluice_engine.server.api.generation.accepted_fields import ENDING, VARIABLES, chat_options
from sluice_engine.server.api.generation.message_schema import MESSAGES, messages_of
from sluice_engine.server.api.generation.request_schema import MODEL, check_model
from sluice_engine.server.api.request_fields import Fields, Flag, Form, fields
from sluice_engine.server.api.text_batch import offload
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import BadRequest
from sluice_engine.text.template_budget import TemplateFailed

MAX_TOKENS: Final = 2**20
ADD_SPECIAL: Final = Flag("add_special_tokens", True)
RETURN_STRINGS: Final = Flag("return_token_strs")
TOKENIZE: Final = fields(
    MODEL,
    Form("prompt", {"type": "string"}),
    MESSAGES,
    ADD_SPECIAL,
    RETURN_STRINGS,
    tool_fields.TOOLS,
    VARIABLES,
    *ENDING.values(),
)
DETOKENIZE: Final = fields(
    MODEL,
    Form("tokens", {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": MAX_TOKENS}),
)
DETOKENIZE_REQUIRED: Final = ("tokens",)


async def tokenize(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /tokenize: the token ids of a prompt, or of a chat after its template."""
    body = await _begin(request, serving, TOKENIZE)
    ids, strings = await _ids(serving, body), RETURN_STRINGS.of(body)
    return serving.response(request, 200, await offload(serving, len(ids), lambda: _described(serving, ids, strings)))


async def detokenize(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /detokenize: the text of token ids."""
    body = await _begin(request, serving, DETOKENIZE)
    ids = body.get("tokens")
    if not isinstance(ids, list) or len(ids) > MAX_TOKENS or any(type(each) is not int for each in ids):
        raise invalid("tokens", f"must be a list of at most {MAX_TOKENS} token ids")
    width = serving.ready.vocab_size
    if any(not 0 <= each < width for each in ids):
        raise invalid("tokens", f"must hold ids from 0 to {width - 1}")
    text = await offload(serving, len(ids), lambda: serving.text.decode(ids))
    return serving.response(request, 200, orjson.dumps({"prompt": text}))


def _described(serving: Serving, ids: list[int], strings: bool | None) -> bytes:
    return orjson.dumps(
        {
            "count": len(ids),
            "max_model_len": serving.ready.max_model_length,
            "tokens": ids,
            "token_strs": [serving.text.token_text(each) for each in ids] if strings else None,
        }
    )


async def _begin(request: web.BaseRequest, serving: Serving, known: Fields) -> Object:
    body = await read_object(request)
    serving.check_loaded()
    if body.get("model") is not None:
        check_model(body, serving.served_name)
    only(body, known)
    return body


async def _ids(serving: Serving, body: Object) -> list[int]:
    text = serving.text
    # Every field is read whichever of prompt and messages is sent: a malformed one is an error in both.
    special, tools = ADD_SPECIAL.of(body), tool_fields.tool_choice(body).tools
    messages = messages_of(body) if body.get("messages") is not None else ()
    options = chat_options(body, messages)
    if messages:
        if body.get("prompt") is not None:
            raise invalid("messages", "and prompt exclude each other")
        try:  # in a thread: a template may take long whatever the messages' size
            return await offload(
                serving,
                MAX_BODY_BYTES,
                lambda: text.encode_chat(messages, options.variables, tools, ending=options.ending),
            )
        except TemplateFailed as error:
            raise BadRequest(f"{error}.", param="messages", code="invalid_value") from error
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise invalid("prompt", "is required: a string; or messages")
    return await offload(serving, len(prompt), lambda: text.encode_prompt(prompt, special_tokens=special))
