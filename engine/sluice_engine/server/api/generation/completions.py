"""Handlers of chat completions and completions: validate, encode, submit. `response.py` builds the response.

However a request ends (finished, stop string, client disconnect, engine error), the `finally` block cancels its samples
in the engine. Cancellation is idempotent.
"""

import time
from collections.abc import Callable, Sequence

from aiohttp import web

from sluice.auth.caller import caller_of
from sluice.httpapi.body import read_object, release
from sluice_engine import messages
from sluice_engine.grammar import Grammar, GrammarInvalid, literals
from sluice_engine.grammar.checker import CheckerBusy
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.seeds import sample_seed
from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.generation.output_format import refused
from sluice_engine.server.api.generation.prompt import Encoded, check_ids, encode, form_of, grammar_in, params_of
from sluice_engine.server.api.generation.prompt_echo import prompt_values
from sluice_engine.server.api.generation.response import ResponseBuilder, SampleNames
from sluice_engine.server.api.generation.sse import ChatFormat, CompletionFormat, ResponseFormat
from sluice_engine.server.api.kv_events import prompt_tag
from sluice_engine.server.context import Serving, is_last_attempt, offered_before, request_id_of, waited_before
from sluice_engine.server.engine.client import EngineFailed, Stream
from sluice_engine.server.errors import InternalError, Unavailable
from sluice_engine.server.request_log import entry_of
from sluice_engine.server.usage import Usage


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
    check: Callable[[Object, str], request_schema.Generation],
) -> web.StreamResponse:
    return await complete(request, serving, await read_object(request), response_format, check)


async def complete(
    request: web.BaseRequest,
    serving: Serving,
    body: Object,
    response_format: ResponseFormat,
    check: Callable[[Object, str], request_schema.Generation],
) -> web.StreamResponse:
    """Responds to a body, which `check` parses, in a format. Raises ApiError."""
    serving.check_loaded(request)
    arrived_at = time.monotonic() - waited_before(request)
    check_ids(body, serving.ready.max_model_length)
    generation = check(body, serving.served_name)
    serving.check_task("generate")
    serving.check_accepting(request)
    await _check_grammar(serving, generation)
    prompts = await encode(serving, generation)
    params = [params_of(serving, generation, len(each.tokens)) for each in prompts]
    values = prompt_values(prompts, generation.choices.params)
    caller, total = caller_of(request), sum(len(each.tokens) for each in prompts)
    caller.take_prompt(total)
    entry = entry_of(request)
    entry.arrived_at, entry.usage = arrived_at, Usage(prompt=total)
    names = SampleNames(response_format.prefix, len(prompts), generation.choices.params.n)
    submits = _submits(serving, request, generation, prompts, params, names.groups, arrived_at)
    builder: ResponseBuilder | None = None
    try:
        stream = await _submit(serving, submits)  # the engine works while the response is prepared
        form = form_of(serving, generation, prompts[0].tokens)
        generation = generation.without_prompt()
        builder = ResponseBuilder(
            serving, request, generation, response_format, entry.usage, form, prompts, names, values
        )
        del body, prompts, submits  # the response may take minutes; only the engine needs the prompts now
        release(request)
        return await (builder.stream(stream) if generation.stream else builder.collect(stream))
    except EngineFailed as error:
        for each in names.ids:
            serving.metrics.ended(each, "error")
        raise InternalError(request_id_of(request)) from error
    finally:
        if builder is not None:
            builder.release()
        else:
            _abort(serving, names)


def _abort(serving: Serving, names: SampleNames) -> None:
    for each in names.ids:
        serving.engine.cancel(each, "abort")
        serving.metrics.ended(each, "abort")


async def _check_grammar(serving: Serving, generation: request_schema.Generation) -> None:
    """Raises BadRequest for a grammar that cannot be enforced, and Unavailable if that cannot be told in time."""
    given, whole = generation.output_format, grammar_in(serving, generation)
    checked = [(each.grammar, each.param) for each in generation.strict_tools]
    if given is not None and whole is not None:
        checked += [(each.grammar, each.param) for each in (*given.parts, given)]
        checked += [] if whole == given.grammar else [(whole, "tools")]
    if not checked:
        return
    trial = serving.grammars.trial()
    for grammar, param in checked:
        try:
            _check_writable(serving, grammar)
            await trial.check(grammar)
        except GrammarInvalid as error:
            raise refused(param, error) from error
        except CheckerBusy as error:
            raise Unavailable(
                f"{param} could not be checked in time, because the grammars of other requests are; send it again.",
                code="grammar_check_busy",
                retry_after=1.0,
            ) from error


def _check_writable(serving: Serving, grammar: Grammar) -> None:
    """Raises GrammarInvalid for a literal that the model's vocabulary cannot spell."""
    for literal in literals(grammar):
        if missing := serving.text.unwritable(literal):
            raise GrammarInvalid(f"the model's vocabulary cannot spell the character U+{ord(missing):04X}")


def _submits(
    serving: Serving,
    request: web.BaseRequest,
    generation: request_schema.Generation,
    prompts: Sequence[Encoded],
    params: Sequence[SamplingParams],
    groups: Sequence[Sequence[str]],
    arrived_at: float,
) -> list[messages.Submit]:
    """Returns one message per prompt. `groups` has the ids of each prompt's samples."""
    caller = caller_of(request)
    tag = prompt_tag(request, serving) if len(prompts) == 1 else ""  # the gateway knows several as one text
    return [
        messages.Submit(
            ids[0],
            prompt.tokens,
            param,
            arrived_at,
            priority=caller.priority(generation.priority),
            tenant=caller.tenant,
            ttft_target=generation.ttft_target,
            itl_target=generation.itl_target,
            samples=tuple((each, sample_seed(param.seed, index)) for index, each in enumerate(ids) if index),
            offered_before=offered_before(request),
            waited=waited_before(request),
            last_attempt=is_last_attempt(request),
            cache_salt=generation.prompt_options.cache_salt,
            prompt_tag=tag,
            output_token_ids=() if generation.resumption is None else generation.resumption.tokens,
        )
        for ids, prompt, param in zip(groups, prompts, params, strict=True)
    ]


async def _submit(serving: Serving, submits: Sequence[messages.Submit]) -> Stream:
    """Records the arrival while the engine reads the request; one that it cannot be given arrived, too."""
    try:
        stream = serving.engine.submit(*submits)
    finally:
        for each in submits:
            serving.metrics.started(
                each.names, each.arrived_at, len(each.prompt_token_ids), offered_before=each.offered_before
            )
    await serving.engine.drained()
    return stream
