"""Handlers of chat completions and completions: validate, encode, submit. `response.py` builds the response.

However a request ends (finished, stop string, client disconnect, engine error), the `finally` block cancels its samples
in the engine. Cancellation is idempotent.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aiohttp import web

from sluice_engine import messages
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.seeds import sample_seed
from sluice_engine.server.api import request_schema
from sluice_engine.server.api.response import ResponseBuilder
from sluice_engine.server.api.sse import ChatFormat, CompletionFormat, ResponseFormat
from sluice_engine.server.auth.caller import caller_of
from sluice_engine.server.context import Serving, offered_before, request_id_of
from sluice_engine.server.engine_client import EngineFailed
from sluice_engine.server.errors import BadRequest, ContextTooLong, InternalError
from sluice_engine.server.request_log import entry_of
from sluice_engine.server.transport.body import read_object, release
from sluice_engine.server.usage import Usage
from sluice_engine.text.chat_template import TemplateFailed

INLINE_CHARACTERS: Final = 2048  # shorter prompts are encoded on the event loop: a thread costs more than they do
MESSAGE_CHARACTERS: Final = 32  # cost of a message besides its content, in characters


async def chat(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    return await _complete(request, serving, ChatFormat(), request_schema.chat)


async def completions(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/completions."""
    return await _complete(request, serving, CompletionFormat(), request_schema.completion)


async def _complete(
    request: web.BaseRequest,
    serving: Serving,
    response_format: ResponseFormat,
    check: Callable[[dict[str, object], str], request_schema.Generation],
) -> web.StreamResponse:
    body = await read_object(request)
    serving.check_loaded(request)
    arrived_at = time.monotonic()
    _check_ids(body, serving.ready.max_model_length)
    generation = check(body, serving.served_name)
    serving.check_task("generate")
    serving.check_accepting(request)
    tokens = await _encode(serving, generation)
    generation = generation.without_prompt()
    params = _params(serving, generation, len(tokens))
    caller = caller_of(request)
    caller.take_prompt(len(tokens))
    entry = entry_of(request)
    entry.arrived_at, entry.usage = arrived_at, Usage(prompt=len(tokens))
    builder = ResponseBuilder(serving, request, generation, response_format, entry.usage)
    again = offered_before(request)
    message = messages.Submit(
        builder.ids[0],
        tokens,
        params,
        arrived_at,
        priority=caller.priority(generation.priority),
        tenant=caller.tenant,
        ttft_target=generation.ttft_target,
        itl_target=generation.itl_target,
        samples=tuple((each, sample_seed(params.seed, index)) for index, each in enumerate(builder.ids) if index),
        offered_before=again,
    )
    serving.metrics.started(builder.ids, arrived_at, len(tokens), offered_before=again)
    try:
        stream = await serving.engine.submit(message)
        del body, tokens, message  # the response may take minutes; only the engine needs the prompt now
        release(request)
        return await (builder.stream(stream) if generation.stream else builder.collect(stream))
    except EngineFailed as error:
        for each in builder.ids:
            serving.metrics.ended(each, "error")
        raise InternalError(request_id_of(request)) from error
    finally:
        builder.release()


async def _encode(serving: Serving, generation: request_schema.Generation) -> tuple[int, ...]:
    """Returns the prompt's token ids, checked against the context length and the width of the logits."""
    context = serving.ready.max_model_length
    if isinstance(generation.prompt, tuple):
        tokens = generation.prompt
        if max(tokens) >= serving.ready.vocab_size:
            raise BadRequest(
                f"prompt holds a token id that is not below the vocabulary's size, {serving.ready.vocab_size}.",
                param="prompt",
                code="invalid_value",
            )
    else:
        texts = [generation.prompt or ""] if generation.messages is None else [m.content for m in generation.messages]
        fewest = sum(map(serving.text.fewest_tokens, texts))
        if fewest >= context:
            raise _too_long(generation.prompt_param, f"at least {fewest}", context)
        if sum(map(len, texts)) + MESSAGE_CHARACTERS * len(texts) <= INLINE_CHARACTERS:
            tokens = _tokens(serving, generation)
        else:
            tokens = await asyncio.get_running_loop().run_in_executor(serving.threads, _tokens, serving, generation)
    if not tokens:
        raise BadRequest("The prompt has no tokens.", param=generation.prompt_param, code="invalid_value")
    if len(tokens) >= context:
        raise _too_long(generation.prompt_param, str(len(tokens)), context)
    return tokens


def _tokens(serving: Serving, generation: request_schema.Generation) -> tuple[int, ...]:
    try:
        if generation.messages is not None:
            return tuple(serving.text.encode_chat(generation.messages))
        return tuple(serving.text.encode_prompt(str(generation.prompt)))
    except TemplateFailed as error:
        raise BadRequest(f"{error}.", param=generation.prompt_param, code="invalid_value") from error


def _check_ids(body: dict[str, object], context: int) -> None:
    """Rejects a prompt with too many token ids in O(1), before each id is checked: a body has room for millions."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        prompt = prompt[0]
    if isinstance(prompt, list) and len(prompt) >= context and type(prompt[0]) is int:
        raise _too_long("prompt", str(len(prompt)), context)


def _too_long(param: str, tokens: str, context: int) -> ContextTooLong:
    return ContextTooLong(
        f"This model's context is {context} tokens and the prompt has {tokens}; shorten it to at most {context - 1}.",
        param,
    )


def _params(serving: Serving, generation: request_schema.Generation, prompt_tokens: int) -> SamplingParams:
    """The request's parameters for this prompt, checked against the context length and the width of the logits."""
    params, min_tokens = generation.choices.params, generation.choices.min_tokens
    context = serving.ready.max_model_length
    room = context - prompt_tokens
    if params.max_tokens is not None and params.max_tokens > room:
        raise ContextTooLong(
            f"This model's context is {context} tokens; the prompt has {prompt_tokens} and "
            f"{generation.max_tokens_param} asks for {params.max_tokens} more; ask for at most {room}.",
            generation.max_tokens_param,
        )
    max_tokens = params.max_tokens or room
    if min_tokens > max_tokens:
        raise BadRequest(
            f"min_tokens is {min_tokens}, and at most {max_tokens} tokens may be generated.",
            param="min_tokens",
            code="invalid_value",
        )
    if any(token >= serving.ready.vocab_size for token in params.logit_bias):
        raise BadRequest(
            f"logit_bias holds a token id that is not below the vocabulary's size, {serving.ready.vocab_size}.",
            param="logit_bias",
            code="invalid_value",
        )
    stop_token_ids = () if params.ignore_eos else serving.text.stop_token_ids
    return replace(params, max_tokens=max_tokens, min_tokens=min_tokens, stop_token_ids=stop_token_ids)
