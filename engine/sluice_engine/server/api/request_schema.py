"""Parses a request body into a `Generation` in one place, before any work is done for the request.

A value out of range is a 400 error with `param`. A field of the OpenAI API that this engine lacks is a 400 error
`unsupported_parameter`, because a silently ignored field would mislead the client.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from sluice_engine.server.api.fields import MAX_INTEGER, Object, boolean, integer, invalid, number, only, strings, text
from sluice_engine.server.api.sampling_fields import FIELDS, Choices, chat_choices, completion_choices
from sluice_engine.server.errors import BadRequest, NotFound, Unsupported
from sluice_engine.text import Message

MAX_STOPS: Final = 4
MAX_STOP_CHARACTERS: Final = 512
MAX_MESSAGES: Final = 4096
MAX_PARTS: Final = 1024
MAX_TOP_K: Final = 1_000_000
MAX_PRIORITY: Final = 100
MAX_SLO_MS: Final = 1e7
ROLES: Final = frozenset({"system", "developer", "user", "assistant"})

COMMON: Final = frozenset(
    {"model", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stream", "stream_options"}
    | {"priority", "slo"}
    | {"user", "ignore_eos", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
)
CHAT: Final = COMMON | FIELDS | {"messages", "max_completion_tokens"}
MESSAGE_UNSUPPORTED: Final = ("tool_calls", "function_call", "audio", "tool_call_id")
MESSAGE: Final = frozenset({"role", "content", "name", "refusal", "annotations", *MESSAGE_UNSUPPORTED})
COMPLETION: Final = COMMON | FIELDS | {"prompt", "echo"}

# Unsupported fields, each with the neutral values that are accepted because they request nothing.
NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": (),
    "suffix": ("",),
    "echo": (False,),
    "store": (False,),
    "chat_template": (),
    "chat_template_kwargs": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "documents": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
}


@dataclass(frozen=True, slots=True)
class Generation:
    """A validated request.

    Exactly one of `messages` and `prompt` is set until the prompt is encoded.
    """

    messages: tuple[Message, ...] | None
    prompt: str | tuple[int, ...] | None
    choices: Choices
    max_tokens_param: str
    stream: bool
    include_usage: bool
    priority: int  # −100..100
    ttft_target: float | None  # seconds; None: the engine's target
    itl_target: float | None

    @property
    def prompt_param(self) -> str:
        """The field name used in errors about the prompt."""
        return "prompt" if self.messages is None else "messages"

    def without_prompt(self) -> "Generation":
        """Returns a copy without the prompt, which need not stay in memory once it is encoded."""
        return replace(self, messages=None, prompt=None)


def chat(body: Object, served_name: str) -> Generation:
    """Parses a `/v1/chat/completions` body. Raises BadRequest, Unsupported, NotFound."""
    check_model(body, served_name)
    _supported(body)
    only(body, CHAT | frozenset(NEUTRAL))
    limit_param = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    if limit_param == "max_completion_tokens" and body.get("max_tokens") is not None:
        raise invalid("max_tokens", "and max_completion_tokens exclude each other")
    return _generation(body, limit_param, chat_choices(body), messages=_messages(body), prompt=None)


def completion(body: Object, served_name: str) -> Generation:
    """Parses a `/v1/completions` body. Raises BadRequest, Unsupported, NotFound."""
    check_model(body, served_name)
    _supported(body)
    only(body, COMPLETION | frozenset(NEUTRAL))
    choices = completion_choices(body, boolean(body, "stream"))
    return _generation(body, "max_tokens", choices, messages=None, prompt=_prompt(body))


def _generation(
    body: Object,
    limit_param: str,
    choices: Choices,
    *,
    messages: tuple[Message, ...] | None,
    prompt: str | tuple[int, ...] | None,
) -> Generation:
    stream = boolean(body, "stream")
    text(body, "user", 1024)
    ttft_target, itl_target = targets(body)
    params = replace(
        choices.params,
        max_tokens=integer(body, limit_param, 1, MAX_INTEGER),  # None: the rest of the context
        temperature=number(body, "temperature", 0.0, 2.0, 1.0),
        top_p=number(body, "top_p", 0.0, 1.0, 1.0, above=True),
        top_k=integer(body, "top_k", 0, MAX_TOP_K, 0) or 0,
        seed=integer(body, "seed", -MAX_INTEGER - 1, MAX_INTEGER),
        stop=strings(body, "stop", MAX_STOPS, MAX_STOP_CHARACTERS),
        ignore_eos=boolean(body, "ignore_eos"),
    )
    return Generation(
        messages=messages,
        prompt=prompt,
        choices=replace(choices, params=params),
        max_tokens_param=limit_param,
        stream=stream,
        include_usage=_include_usage(body, stream),
        priority=integer(body, "priority", -MAX_PRIORITY, MAX_PRIORITY, 0) or 0,
        ttft_target=ttft_target,
        itl_target=itl_target,
    )


def check_model(body: Object, served_name: str) -> None:
    """Raises BadRequest if the model name is missing, and NotFound if it differs from the served name."""
    model = body.get("model")
    if not isinstance(model, str):
        raise invalid("model", "is required and must be a string")
    if model != served_name:
        raise NotFound(
            f"The model does not exist; this server serves {served_name!r}.", param="model", code="model_not_found"
        )


def _supported(body: Object) -> None:
    for name, neutral in NEUTRAL.items():
        value = body.get(name)
        if value is None:
            continue
        if not any(type(value) is type(each) and value == each for each in neutral):
            raise Unsupported(f"{name} is not supported by this engine; leave it out.", param=name)


def targets(body: Object) -> tuple[float | None, float | None]:
    """Returns the request's own SLO targets in seconds (TTFT, ITL); None where the engine's apply. Raises BadRequest."""
    slo = body.get("slo")
    if slo is None:
        return None, None
    if not isinstance(slo, dict):
        raise invalid("slo", "must be an object with ttft_ms and itl_ms")
    only(slo, frozenset({"ttft_ms", "itl_ms"}), "slo.")
    dotted = {f"slo.{name}": value for name, value in slo.items()}
    ttft, itl = (number(dotted, f"slo.{name}", 0.0, MAX_SLO_MS, 0.0, above=True) for name in ("ttft_ms", "itl_ms"))
    return ttft / 1000 or None, itl / 1000 or None


def _include_usage(body: Object, stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise invalid("stream_options", "is only allowed with stream: true")
    if not isinstance(options, dict):
        raise invalid("stream_options", "must be an object")
    only(options, frozenset({"include_usage", "include_obfuscation"}), "stream_options.")
    value = options.get("include_usage")
    if value is not None and type(value) is not bool:
        raise invalid("stream_options.include_usage", "must be true or false")
    return bool(value)


def _prompt(body: Object) -> str | tuple[int, ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt:
        kinds = set(map(type, prompt))
        if kinds == {int} and min(prompt) >= 0:
            return tuple(prompt)
        if kinds <= {str, list}:
            raise Unsupported("prompt must be a single prompt; send one request per prompt.", param="prompt")
    raise invalid("prompt", "is required: a non-empty string, a list of one string, or a list of token ids")


def _messages(body: Object) -> tuple[Message, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        raise invalid("messages", f"is required: a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict):
        raise invalid(where, "must be an object with role and content")
    for name in MESSAGE_UNSUPPORTED:
        if message.get(name):
            raise Unsupported(f"{where}.{name} is not supported by this engine.", param=f"{where}.{name}")
    only(message, MESSAGE, f"{where}.")
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid(f"{where}.role", "is required and must be a string")
    if role in {"tool", "function"}:
        raise Unsupported(f"{where}.role {role!r} is not supported by this engine.", param=f"{where}.role")
    if role not in ROLES:
        raise invalid(f"{where}.role", "must be one of system, user, assistant")
    if message.get("name") is not None and not isinstance(message["name"], str):
        raise invalid(f"{where}.name", "must be a string")
    return Message("system" if role == "developer" else role, _content(message.get("content"), f"{where}.content"))


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not 1 <= len(content) <= MAX_PARTS:
        raise invalid(where, "must be a string or a non-empty list of text parts")
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise invalid(where, "must be an object with type and text")
    kind = part.get("type")
    if isinstance(kind, str) and kind in {"image_url", "input_audio", "file", "refusal", "video_url", "audio_url"}:
        raise Unsupported(f"{where}.type {kind!r} is not supported by this engine.", param=f"{where}.type")
    if kind != "text" or not isinstance(part.get("text"), str):
        raise BadRequest(f"{where} must be {{type: 'text', text: string}}.", param=where, code="invalid_value")
    return str(part["text"])
