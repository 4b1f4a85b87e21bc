"""Validates the fields that clients of other servers send: of the prompt's text, of the shown text, and descriptive ones.

A descriptive field (`store`, `metadata`, …) has no effect: nothing is stored. It is checked as OpenAI checks it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.request_fields import (
    Choice,
    Flag,
    Form,
    Integer,
    Strings,
    Text,
    fields,
    list_of,
    object_form,
)
from sluice_engine.text import Display, Ending, Message

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
HIGHEST_OF_TEMPLATES: Final = "xhigh"  # what "max" is to a chat template
VERBOSITIES: Final = ("low", "medium", "high")
TIERS: Final = ("auto", "default", "flex", "priority", "scale", "fast")
MAX_METADATA: Final = 16
MAX_VARIABLES: Final = 64
MAX_NESTING: Final = 8
MAX_PARTS: Final = 1024
MAX_BAD_WORDS: Final = 128
MAX_BAD_WORD_CHARACTERS: Final = 128
TEMPLATES_OWN: Final = frozenset({"messages", "add_generation_prompt", "tools", "chat_template"})

NAMES: Final = tuple(Text(name, 1024) for name in ("user", "safety_identifier", "prompt_cache_key"))
RETENTION: Final = Text("prompt_cache_retention", 64)
CACHE_OPTIONS: Final = Form("prompt_cache_options", {"type": "object"})
STORE: Final = Flag("store")
SERVICE_TIER: Final = Choice("service_tier", TIERS)
METADATA: Final = Form(
    "metadata",
    {
        "type": "object",
        "maxProperties": MAX_METADATA,
        "propertyNames": {"maxLength": 64},
        "additionalProperties": {"type": "string", "maxLength": 512},
    },
)
TRUNCATE: Final = Integer("truncate_prompt_tokens", -1, 2**31)
CACHE_SALT: Final = Text("cache_salt", 1024, empty=False)
EFFORT: Final = Choice("reasoning_effort", EFFORTS)
VERBOSITY: Final = Choice("verbosity", VERBOSITIES)
VARIABLES: Final = Form(
    "chat_template_kwargs",
    {
        "type": "object",
        "maxProperties": MAX_VARIABLES,
        "propertyNames": {"not": {"enum": sorted(TEMPLATES_OWN)}},
    },
)
_TEXT: Final[Object] = {"type": "string"}
_TEXT_PART: Final = object_form(
    fields(Form("type", {"const": "text"}), Form("text", _TEXT)), ("type", "text"), more=True
)
PREDICTION: Final = Form(
    "prediction",
    object_form(
        fields(
            Form("type", {"const": "content"}), Form("content", {"anyOf": [_TEXT, list_of(_TEXT_PART, 0, MAX_PARTS)]})
        ),
        ("type", "content"),
    ),
)
GENERATION_PROMPT: Final = Flag("add_generation_prompt", True)
CONTINUE: Final = Flag("continue_final_message")
SKIP_SPECIAL: Final = Flag("skip_special_tokens", True)
INCLUDE_STOP: Final = Flag("include_stop_str_in_output")
BAD_WORDS: Final = Strings("bad_words", MAX_BAD_WORDS, MAX_BAD_WORD_CHARACTERS, empty=True)

DESCRIPTIVE: Final = fields(*NAMES, RETENTION, CACHE_OPTIONS, STORE, SERVICE_TIER, METADATA)
TRUNCATION: Final = fields(Form(TRUNCATE.name, TRUNCATE.form() | {"not": {"const": 0}}))
PROMPT: Final = {**TRUNCATION, **fields(CACHE_SALT)}
ENDING: Final = fields(GENERATION_PROMPT, CONTINUE)  # vLLM's
HINTS: Final = fields(PREDICTION)  # of a chat: without an effect on its answer
TEMPLATE: Final = {**fields(VARIABLES, EFFORT, VERBOSITY), **ENDING}
SHOWN: Final = fields(SKIP_SPECIAL, INCLUDE_STOP)


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How a prompt becomes tokens, and who may use its cached prefix."""

    variables: Mapping[str, Any] = field(default_factory=dict)  # of the chat template
    truncate: int | None = None  # keeps the last so many tokens; −1: as many as the context has room for
    cache_salt: str = ""
    ending: Ending = "answer"  # of a chat


def descriptive(body: Object) -> None:
    """Checks the fields without an effect. Raises BadRequest."""
    if body.keys().isdisjoint(DESCRIPTIVE):
        return
    for name in (*NAMES, RETENTION):
        name.of(body)
    if not isinstance(body.get(CACHE_OPTIONS.name), dict | None):
        raise invalid(CACHE_OPTIONS.name, "must be an object")
    STORE.of(body)
    SERVICE_TIER.of(body)
    metadata = body.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, dict) or len(metadata) > MAX_METADATA:
        raise invalid("metadata", f"must be an object of at most {MAX_METADATA} strings")
    for name, value in metadata.items():
        if len(name) > 64 or not isinstance(value, str) or len(value) > 512:
            raise invalid("metadata", "must have names of at most 64 and strings of at most 512 characters")


def prompt_options(body: Object) -> PromptOptions:
    """Parses the fields of a completion's prompt. Raises BadRequest."""
    if body.keys().isdisjoint(PROMPT):
        return PromptOptions()
    return PromptOptions(truncate=truncation(body), cache_salt=CACHE_SALT.of(body) or "")


def truncation(body: Object) -> int | None:
    """How many tokens are kept of a prompt; −1: as many as there is room for. Raises BadRequest."""
    most = TRUNCATE.of(body)
    if most == 0:
        raise invalid(TRUNCATE.name, "must be −1, for what the context has room for, or at least 1")
    return most


def chat_options(body: Object, messages: Sequence[Message]) -> PromptOptions:
    """Parses the fields of a chat's prompt: those of a completion, variables of the template, and its end. Raises BadRequest."""
    options = prompt_options(body)
    _check_prediction(body.get(PREDICTION.name))
    variables = dict(_template_variables(body.get("chat_template_kwargs")))
    for each in (EFFORT, VERBOSITY):
        if (value := each.of(body)) is not None:
            variables[each.name] = HIGHEST_OF_TEMPLATES if value == "max" else value
    return PromptOptions(variables, options.truncate, options.cache_salt, _ending(body, messages))


def _check_prediction(value: Any) -> None:
    """A prediction of the answer's text is to make the answer faster, and never changes it."""
    if value is None:
        return
    content = value.get("content") if isinstance(value, dict) and value.get("type") == "content" else None
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list) or len(parts) > MAX_PARTS or not all(map(_is_text, parts)):
        raise invalid(PREDICTION.name, "must be an object {type: 'content', content: string or text parts}")
    only(value, ("type", "content"), f"{PREDICTION.name}.")


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _ending(body: Object, messages: Sequence[Message]) -> Ending:
    """Of all messages, the last alone may say `prefix: true`, Mistral's and DeepSeek's name of the same."""
    goes_on = CONTINUE.of(body) or (bool(messages) and messages[-1].is_prefix)
    if not goes_on:
        return "answer" if GENERATION_PROMPT.of(body) else "last_message"
    if body.get(GENERATION_PROMPT.name):
        raise invalid(GENERATION_PROMPT.name, "and continue_final_message exclude each other")
    if not messages or messages[-1].role != "assistant" or messages[-1].fields:
        raise invalid(CONTINUE.name, "needs a text of the assistant as the last message")
    return "last_text"


def display(body: Object) -> Display:
    """Parses what of an output is shown besides its text. Raises BadRequest."""
    if body.keys().isdisjoint(SHOWN):
        return Display()
    return Display(
        special_tokens=not SKIP_SPECIAL.of(body),
        stop_string=INCLUDE_STOP.of(body),
    )


def bad_words(body: Object) -> tuple[str, ...]:
    """Returns the words that the output must not contain. Raises BadRequest."""
    return BAD_WORDS.of(body)


def _template_variables(value: Any) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_VARIABLES:
        raise invalid("chat_template_kwargs", f"must be an object of at most {MAX_VARIABLES} variables")
    if own := sorted(TEMPLATES_OWN & value.keys()):
        raise invalid("chat_template_kwargs", f"must not set {own[0]}: the request's own fields do")
    if not _shallow(value, MAX_NESTING):
        raise invalid("chat_template_kwargs", f"must not be nested deeper than {MAX_NESTING} levels")
    return value


def _shallow(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    entries = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_shallow(entry, levels - 1) for entry in entries)
