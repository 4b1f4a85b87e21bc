"""Encodes the prompts of a request and checks them against the model: context length, and width of the logits."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sluice_engine.grammar import Grammar
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.server.api.fields import invalid
from sluice_engine.server.api.generation.answer import AnswerForm
from sluice_engine.server.api.generation.request_schema import Generation, Prompt
from sluice_engine.server.api.generation.resumption import RESUME
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import BadRequest, ContextTooLong
from sluice_engine.text import Message, TextModel
from sluice_engine.text.reasoning import OPENING
from sluice_engine.text.template_budget import INLINE_SECONDS, RENDER_SECONDS, TemplateFailed, TemplateSlow
from sluice_engine.tools import Dialect, Tool
from sluice_engine.tools.schemas import answer_or_calls

INLINE_CHARACTERS: Final = 2048  # shorter prompts are encoded on the event loop: a thread costs more than they do
OPENED_WITHIN: Final = 8  # tokens at the end of a prompt in which a template opens the reasoning
MESSAGE_CHARACTERS: Final = 32  # cost of a message besides its content, in characters


@dataclass(frozen=True, slots=True)
class Encoded:
    """One prompt as token ids, and the text that `echo` repeats."""

    tokens: tuple[int, ...]
    echo: str = ""
    before_echo: int = 0  # characters of tokens before that text, such as a BOS token


async def encode(serving: Serving, generation: Generation) -> list[Encoded]:
    """Returns the request's prompts, at least one. Raises BadRequest, ContextTooLong."""
    texts = _texts(generation)
    _check_sizes(serving, generation, texts)
    characters = sum(map(len, texts)) + MESSAGE_CHARACTERS * len(texts)
    inline = characters <= INLINE_CHARACTERS and not _renders_more(
        generation.messages or (), generation.prompt_options.variables, generation.tools.tools
    )
    try:
        prompts = _encode_inline(serving, generation) if inline else None
        if prompts is None:
            work = partial(_encode, serving, generation, RENDER_SECONDS)
            prompts = await asyncio.get_running_loop().run_in_executor(serving.threads, work)
    except TemplateFailed as error:
        raise BadRequest(f"{error}.", param=generation.prompt_param, code="invalid_value") from error
    for prompt in prompts:
        if not prompt.tokens:
            raise BadRequest("The prompt has no tokens.", param=generation.prompt_param, code="invalid_value")
        if len(prompt.tokens) >= serving.ready.max_model_length:
            raise _too_long(generation.prompt_param, str(len(prompt.tokens)), serving.ready.max_model_length)
    return prompts


def params_of(serving: Serving, generation: Generation, prompt_tokens: int) -> SamplingParams:
    """Returns the parameters for a prompt of so many tokens. Raises BadRequest, ContextTooLong."""
    params, min_tokens = generation.choices.params, generation.choices.min_tokens
    context, width = serving.ready.max_model_length, serving.ready.vocab_size
    room = context - prompt_tokens
    if params.max_tokens is not None and params.max_tokens > room:
        raise ContextTooLong(
            f"This model's maximum context length is {context} tokens. However, you requested "
            f"{prompt_tokens + params.max_tokens} tokens ({prompt_tokens} in the prompt, {params.max_tokens} by "
            f"{generation.max_tokens_param}); ask for at most {room}.",
            generation.max_tokens_param,
            f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {params.max_tokens} > {context}, decrease "
            f"input length or `max_tokens` and try again; ask for at most {room}.",
        )
    max_tokens = params.max_tokens or min(room, generation.default_max_tokens or room)
    if generation.resumption is not None:
        begun = generation.resumption.tokens
        _check_ids(f"{RESUME.name}.tokens", begun, width)
        if begun and len(begun) >= max_tokens:
            raise invalid(f"{RESUME.name}.tokens", f"has {len(begun)} tokens of {max_tokens}, so that none is left")
    if min_tokens > max_tokens:
        raise BadRequest(
            f"min_tokens is {min_tokens}, and at most {max_tokens} tokens may be generated.",
            param="min_tokens",
            code="invalid_value",
        )
    _check_ids("logit_bias", params.logit_bias, width)
    _check_ids("stop_token_ids", params.stop_token_ids, width)
    own = () if params.ignore_eos else serving.text.stop_token_ids
    return params.with_checked(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_token_ids=tuple(dict.fromkeys((*own, *params.stop_token_ids))),
        bad_words=_word_ids(serving.text, generation.bad_words),
        grammar=grammar_in(serving, generation),
    )


def grammar_in(serving: Serving, generation: Generation) -> Grammar | None:
    """Returns what the output must be; where the model may call a tool instead of answering, that too."""
    if generation.output_format is None:
        return None
    grammar, tools = generation.output_format.grammar, generation.tools
    return answer_or_calls(grammar, tools, serving.text.tool_dialect or "hermes") if tools.mode == "auto" else grammar


def form_of(serving: Serving, generation: Generation, tokens: Sequence[int]) -> AnswerForm:
    """Returns how the answer to this prompt is read."""
    text, tools = serving.text, generation.tools
    if generation.prompt_param == "prompt":
        return AnswerForm(tools, None, reasons=False)
    dialects: dict[str, Dialect | None] = {"none": None, "named": "named", "required": "list"}
    dialect = dialects.get(tools.mode, text.tool_dialect or "hermes")
    reasons = text.reasons and generation.output_format is None
    opened = reasons and text.decode(tokens[-OPENED_WITHIN:]).rstrip().endswith(OPENING)
    return AnswerForm(tools, dialect, reasons=reasons, in_reasoning=opened)


def check_ids(body: dict[str, object], context: int) -> None:
    """Rejects prompts with too many token ids in O(prompts), before each id is checked: a body has room for millions."""
    given = body.get("prompt")
    for prompt in given if isinstance(given, list) and given and isinstance(given[0], list) else [given]:
        if isinstance(prompt, list) and len(prompt) >= context and type(prompt[0]) is int:
            raise _too_long("prompt", str(len(prompt)), context)


def _check_sizes(serving: Serving, generation: Generation, texts: Sequence[str]) -> None:
    """Rejects token ids outside the vocabulary, and text that is too long for every tokenization."""
    width, context = serving.ready.vocab_size, serving.ready.max_model_length
    for prompt in generation.prompts or ():
        if isinstance(prompt, tuple):
            _check_ids("prompt", prompt, width)
    if generation.prompt_options.truncate is not None:
        return
    counts = [serving.text.fewest_tokens(text) for text in texts]
    fewest = sum(counts) if generation.messages is not None else max(counts, default=0)
    if fewest >= context:
        raise _too_long(generation.prompt_param, f"at least {fewest}", context)


def _renders_more(messages: Sequence[Message], variables: Mapping[str, Any], tools: Sequence[Tool]) -> bool:
    """Whether the template renders more than the messages' text: its size is then unknown."""
    return bool(variables) or bool(tools) or any(message.fields or message.reasoning for message in messages)


def _texts(generation: Generation) -> list[str]:
    if generation.messages is not None:
        return [message.content for message in generation.messages]
    return [prompt for prompt in generation.prompts or () if isinstance(prompt, str)]


def _encode_inline(serving: Serving, generation: Generation) -> list[Encoded] | None:
    """The prompts; None if the template needs more time than the event loop has. Raises TemplateFailed."""
    try:
        return _encode(serving, generation, INLINE_SECONDS)
    except TemplateSlow:
        return None


def _encode(serving: Serving, generation: Generation, seconds: float) -> list[Encoded]:
    text, options = serving.text, generation.prompt_options
    most = options.truncate
    if most == -1:  # as many as the context has room for, beside the output
        most = max(1, serving.ready.max_model_length - (generation.choices.params.max_tokens or 1))
    if generation.messages is None:
        return [_encoded(text, prompt, most, echo=generation.echo) for prompt in generation.prompts or ()]
    offered = generation.tools.tools if generation.tools.mode != "none" else ()
    tokens = text.encode_chat(generation.messages, options.variables, offered, seconds, options.ending)
    return [Encoded(tuple(tokens if most is None else tokens[-most:]))]


def _encoded(text: TextModel, prompt: Prompt, most: int | None, *, echo: bool) -> Encoded:
    tokens = tuple(text.encode_prompt(prompt)) if isinstance(prompt, str) else prompt
    kept = tokens if most is None else tokens[-most:]
    if not echo:
        return Encoded(kept)
    decoded = text.decode(kept)
    shown = prompt if isinstance(prompt, str) and kept == tokens else decoded
    return Encoded(kept, shown, max(0, len(decoded) - len(shown)))


def _word_ids(text: TextModel, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The token sequences of each word, at the start of a text and after a space, as vLLM bars them."""
    if not words:
        return ()
    found = (tuple(text.encode_plain(form)) for word in words for form in (word, f" {word.lstrip()}"))
    return tuple(dict.fromkeys(ids for ids in found if ids))


def _check_ids(param: str, ids: Iterable[int], width: int) -> None:
    if max(ids, default=0) >= width:
        raise BadRequest(
            f"{param} holds a token id that is not below the vocabulary's size, {width}.",
            param=param,
            code="invalid_value",
        )


def _too_long(param: str, tokens: str, context: int) -> ContextTooLong:
    return ContextTooLong(
        f"This model's maximum context length is {context} tokens. However, your prompt has {tokens}; shorten it to at "
        f"most {context - 1}.",
        param,
        f"prompt is too long: {tokens} tokens > {context - 1} maximum",
    )
