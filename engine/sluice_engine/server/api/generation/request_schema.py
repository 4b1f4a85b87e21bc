"""Parses a request body into a `Generation` in one place, before any work is done for the request.

A value out of range is a 400 error with `param`. A field of the OpenAI API that this engine lacks is a 400 error
`unsupported_parameter`, because a silently ignored field would mislead the client.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from msgspec import Struct, structs

from sluice import contract
from sluice_engine.server.api.fields import MAX_INTEGER, Object, invalid, only
from sluice_engine.server.api.generation import accepted_fields, output_format, sampling_fields, tool_fields
from sluice_engine.server.api.generation.accepted_fields import PromptOptions
from sluice_engine.server.api.generation.message_schema import MESSAGES, messages_of
from sluice_engine.server.api.generation.output_format import OutputFormat
from sluice_engine.server.api.generation.resumption import RESUME, Resumption, resumption
from sluice_engine.server.api.generation.sampling_fields import Choices, chat_choices, completion_choices
from sluice_engine.server.api.request_fields import (
    Fields,
    Flag,
    Form,
    Integer,
    Neutral,
    Number,
    Record,
    Strings,
    fields,
    list_of,
)
from sluice_engine.server.errors import NotFound
from sluice_engine.text import Display, Message
from sluice_engine.tools import Tool, ToolChoice
from sluice_engine.tools.schemas import arguments_grammar, grammar_of

MAX_SLO_MS: Final = 1e7
MAX_PROMPTS: Final = 256
MAX_SAMPLES: Final = 1024  # of all prompts of one request
COMPLETION_TOKENS: Final = 16  # OpenAI's default of max_tokens in completions

MODEL: Final = Form("model", {"type": "string"})
MAX_TOKENS: Final = Integer("max_tokens", 1, MAX_INTEGER)
MAX_COMPLETION_TOKENS: Final = Integer("max_completion_tokens", 1, MAX_INTEGER)
STREAM: Final = Flag("stream")
USAGE: Final = tuple(
    Flag(f"stream_options.{name}") for name in ("include_usage", "continuous_usage_stats", "include_obfuscation")
)
STREAM_OPTIONS: Final = Record("stream_options", fields(*USAGE))
PRIORITY: Final = Integer("priority", -contract.MAX_PRIORITY, contract.MAX_PRIORITY, 0)
TTFT: Final = Number("slo.ttft_ms", 0.0, MAX_SLO_MS, 0.0, above=True)
ITL: Final = Number("slo.itl_ms", 0.0, MAX_SLO_MS, 0.0, above=True)
SLO: Final = Record("slo", fields(TTFT, ITL))
ECHO: Final = Flag("echo")
# Of a completion. One field's schema cannot depend on another field.
ECHOED_MAX_TOKENS: Final = Form(
    "max_tokens", MAX_TOKENS.form() | {"description": "With echo also 0, which scores the prompt alone."}
)
_IDS: Final[Object] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT: Final[Object] = {"type": "string", "minLength": 1}
PROMPT: Final = Form("prompt", {"anyOf": [_TEXT, _IDS, list_of(_TEXT, 1, MAX_PROMPTS), list_of(_IDS, 1, MAX_PROMPTS)]})

COMMON: Final[Fields] = {
    **fields(MODEL, MAX_TOKENS, STREAM, STREAM_OPTIONS, PRIORITY, SLO, RESUME, accepted_fields.BAD_WORDS),
    **accepted_fields.DESCRIPTIVE,
    **accepted_fields.PROMPT,
    **accepted_fields.SHOWN,
    **output_format.FIELDS,
}
# Unsupported fields, each with the neutral values that are accepted because they request nothing.
_NEUTRAL: Final = (
    Neutral("functions", ([],), "send them as tools"),
    Neutral("function_call", ("none",), "send tools and tool_choice"),
    Neutral("modalities", (["text"],)),
    *(Neutral(name, ()) for name in ("audio", "web_search_options", "moderation", "chat_template", "documents")),
    Neutral("suffix", ("",)),
    # vLLM's, with its defaults
    Neutral("spaces_between_special_tokens", (True,)),
    Neutral("length_penalty", (1.0,)),
    Neutral("return_tokens_as_token_ids", (False,)),
)
CHAT_NEUTRAL: Final = {
    each.name: each for each in (*_NEUTRAL, Neutral("echo", (False,)), Neutral("add_special_tokens", (False,)))
}
# A completion lacks what only chats support, too.
COMPLETION_NEUTRAL: Final = {
    each.name: each
    for each in (
        *_NEUTRAL,
        *(Neutral(name, ()) for name in accepted_fields.TEMPLATE if name not in accepted_fields.ENDING),
        *(Neutral(name, ()) for name in accepted_fields.HINTS),
        Neutral("add_generation_prompt", (True,)),
        Neutral("continue_final_message", (False,)),
        Neutral("add_special_tokens", (True,)),
        Neutral("tools", ([],)),
        Neutral("tool_choice", ("none",)),
        Neutral("parallel_tool_calls", (True, False)),
    )
}
CHAT: Final[Fields] = {
    **COMMON,
    **sampling_fields.CHAT,
    **accepted_fields.TEMPLATE,
    **accepted_fields.HINTS,
    **tool_fields.FIELDS,
    **fields(MESSAGES, MAX_COMPLETION_TOKENS),
    **CHAT_NEUTRAL,
}
CHAT_REQUIRED: Final = ("model", "messages")
COMPLETION: Final[Fields] = {
    **COMMON,
    **sampling_fields.COMPLETION,
    **fields(PROMPT, ECHO, ECHOED_MAX_TOKENS),
    **COMPLETION_NEUTRAL,
}
COMPLETION_REQUIRED: Final = ("model", "prompt")


Prompt = str | tuple[int, ...]  # text or token ids


class Generation(Struct, frozen=True):
    """A validated request.

    Exactly one of `messages` and `prompts` is set until the prompt is encoded.
    """

    messages: tuple[Message, ...] | None
    prompts: tuple[Prompt, ...] | None
    prompt_options: PromptOptions
    choices: Choices
    display: Display
    bad_words: tuple[str, ...]
    output_format: OutputFormat | None  # what the output must be; None: any text
    tools: ToolChoice
    strict_tools: tuple[OutputFormat, ...]  # arguments of tools that the model may call and that must be enforceable
    echo: bool  # the text of a choice begins with its prompt
    only_prompt: bool  # max_tokens is 0: the engine samples one token, which is not shown
    max_tokens_param: str
    default_max_tokens: int | None  # where the client gives none; None: the rest of the context
    stream: bool
    include_usage: bool
    continuous_usage: bool  # usage in every event of the stream
    priority: int  # −100..100
    ttft_target: float | None  # seconds; None: the engine's target
    itl_target: float | None
    resumption: Resumption | None  # None: the stream need not go on elsewhere

    @property
    def prompt_param(self) -> str:
        """The field name used in errors about the prompt."""
        return "prompt" if self.messages is None else "messages"

    @property
    def echoed_top(self) -> int | None:
        """Top tokens beside each token of an echoed prompt; None: no logprobs are shown with it."""
        return self.choices.params.logprobs if self.echo and self.choices.returns_logprobs else None

    def without_output(self) -> "Generation":
        """Returns a copy that shows the prompt only; nothing but the length ends its output."""
        params = replace(self.choices.params, stop=(), stop_token_ids=(), ignore_eos=True)
        return structs.replace(self, only_prompt=True, output_format=None, choices=replace(self.choices, params=params))

    def without_prompt(self) -> "Generation":
        """Returns a copy without the prompt, which need not stay in memory once it is encoded."""
        return structs.replace(self, messages=None, prompts=None)


def chat(body: Object, served_name: str, stop: Strings = sampling_fields.STOP) -> Generation:
    """Parses a `/v1/chat/completions` body; `stop` reads its stop strings. Raises BadRequest, Unsupported, NotFound."""
    check_model(body, served_name)
    _check_names(body, CHAT, CHAT_NEUTRAL)
    limit = MAX_COMPLETION_TOKENS if body.get("max_completion_tokens") is not None else MAX_TOKENS
    if limit is MAX_COMPLETION_TOKENS and body.get("max_tokens") is not None:
        raise invalid("max_tokens", "and max_completion_tokens exclude each other")
    choices, messages = chat_choices(body, limit.of(body), stop), messages_of(body)
    options, tools = accepted_fields.chat_options(body, messages), tool_fields.tool_choice(body)
    generation = _generation(body, limit, choices, options, messages=messages)
    return structs.replace(
        generation,
        tools=tools,
        strict_tools=_arguments(tools, lambda tool: tool.strict) if tools.mode == "auto" else (),
        output_format=_with_calls(generation.output_format, tools),
    )


def _with_calls(given: OutputFormat | None, tools: ToolChoice) -> OutputFormat | None:
    """The grammar of calls where there must be one, else the given one. Raises BadRequest.

    A `response_format` is about text, of which such an answer has none; instructor sends both to the Responses API.
    """
    grammar = grammar_of(tools)
    if grammar is None:
        return given
    if given is not None and not given.param.startswith("response_format"):
        raise invalid("tool_choice", f"asks for a call, and {given.param} for something else")
    parts = _arguments(tools, lambda tool: tools.mode == "required" or tool.name == tools.name)
    return OutputFormat(grammar, "tools", parts)


def _arguments(tools: ToolChoice, chosen: Callable[[Tool], bool]) -> tuple[OutputFormat, ...]:
    """The grammars of the arguments of the chosen tools."""
    return tuple(
        OutputFormat(arguments_grammar(tool), f"tools[{place}].function.parameters")
        for place, tool in enumerate(tools.tools)
        if chosen(tool)
    )


def completion(body: Object, served_name: str) -> Generation:
    """Parses a `/v1/completions` body. Raises BadRequest, Unsupported, NotFound."""
    check_model(body, served_name)
    _check_names(body, COMPLETION, COMPLETION_NEUTRAL)
    echo = ECHO.of(body)
    only_prompt = echo and type(body.get("max_tokens")) is int and body["max_tokens"] == 0
    max_tokens = 1 if only_prompt else MAX_TOKENS.of(body)
    choices, options = completion_choices(body, max_tokens, STREAM.of(body)), accepted_fields.prompt_options(body)
    prompts = _prompts(body)
    if len(prompts) * choices.params.n > MAX_SAMPLES:
        raise invalid("prompt", f"asks for more than {MAX_SAMPLES} samples in all; send fewer prompts at once")
    if body.get(RESUME.name) and (echo or len(prompts) > 1):
        raise invalid(RESUME.name, "is for one prompt that is not echoed")
    if echo and choices.returns_logprobs:
        top = max(choices.params.logprobs or 0, choices.params.prompt_logprobs or 0)
        choices = replace(choices, params=replace(choices.params, prompt_logprobs=top))
    generation = _generation(body, MAX_TOKENS, choices, options, prompts=prompts, echo=echo)
    return generation.without_output() if only_prompt else generation


def _generation(
    body: Object,
    limit: Integer,
    choices: Choices,
    options: PromptOptions,
    *,
    messages: tuple[Message, ...] | None = None,
    prompts: tuple[Prompt, ...] | None = None,
    echo: bool = False,
) -> Generation:
    stream = STREAM.of(body)
    accepted_fields.descriptive(body)
    ttft_target, itl_target = targets(body)
    include_usage, continuous_usage = _usage_options(body, stream)
    return Generation(
        messages=messages,
        prompts=prompts,
        prompt_options=options,
        choices=choices,
        display=accepted_fields.display(body),
        bad_words=accepted_fields.bad_words(body),
        output_format=output_format.output_format(body),
        tools=ToolChoice(),
        strict_tools=(),
        echo=echo,
        only_prompt=False,
        max_tokens_param=limit.name,
        default_max_tokens=None if prompts is None else COMPLETION_TOKENS,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        priority=PRIORITY.of(body) or 0,
        ttft_target=ttft_target,
        itl_target=itl_target,
        resumption=resumption(body, choices, stream=stream),
    )


def _check_names(body: Object, known: Fields, neutral: Mapping[str, Neutral]) -> None:
    """Raises Unsupported for a field that this engine lacks, and BadRequest for an unknown one."""
    for name in body.keys() & neutral.keys():
        neutral[name].check(body)
    only(body, known)


def check_model(body: Object, served_name: str) -> None:
    """Raises BadRequest if the model name is missing, and NotFound if it differs from the served name."""
    model = body.get("model")
    if not isinstance(model, str):
        raise invalid("model", "is required and must be a string")
    if model != served_name:
        raise NotFound(
            f"The model does not exist; this server serves {served_name!r}.", param="model", code="model_not_found"
        )


def targets(body: Object) -> tuple[float | None, float | None]:
    """Returns the request's own SLO targets in seconds (TTFT, ITL); None where the engine's apply. Raises BadRequest."""
    if SLO.name not in body:
        return None, None
    dotted = SLO.of(body)
    ttft, itl = TTFT.of(dotted), ITL.of(dotted)
    return ttft / 1000 or None, itl / 1000 or None


def _usage_options(body: Object, stream: bool) -> tuple[bool, bool]:
    """Returns whether a stream ends with its usage, and whether every event has the usage so far."""
    if STREAM_OPTIONS.name not in body:
        return False, False
    if body.get("stream_options") is not None and not stream:
        raise invalid("stream_options", "is only allowed with stream: true")
    dotted = STREAM_OPTIONS.of(body)
    usage, continuous, _ = (each.of(dotted) for each in USAGE)
    return usage, usage and continuous


def _prompts(body: Object) -> tuple[Prompt, ...]:
    given = body.get("prompt")
    several = isinstance(given, list) and bool(given) and isinstance(given[0], str | list)
    entries = given if isinstance(given, list) and several else [given]
    if len(entries) > MAX_PROMPTS:
        raise invalid("prompt", f"must hold at most {MAX_PROMPTS} prompts; send several requests")
    if len({type(each) for each in entries}) == 1:
        prompts = [_prompt(each) for each in entries]
        if None not in prompts:
            return tuple(each for each in prompts if each is not None)
    raise invalid("prompt", "is required: a non-empty string, a list of token ids, or a list of either")


def _prompt(value: Any) -> Prompt | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, list) and value and set(map(type, value)) == {int} and min(value) >= 0:
        return tuple(value)
    return None
