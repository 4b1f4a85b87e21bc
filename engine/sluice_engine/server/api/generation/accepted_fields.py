"""Validates the fields that clients of other servers send: of the prompt's text, of the shown text, and descriptive ones.

A descriptive field (`store`, `metadata`, …) has no effect: nothing is stored. It is checked as OpenAI checks it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluice_engine.server.api.fields import Object, boolean, choice, integer, invalid, strings, text
from sluice_engine.text import Display

DESCRIPTIVE: Final = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
PROMPT: Final = frozenset({"truncate_prompt_tokens", "cache_salt"})
TEMPLATE: Final = frozenset({"chat_template_kwargs", "reasoning_effort", "verbosity"})
SHOWN: Final = frozenset({"skip_special_tokens", "include_stop_str_in_output"})

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
VERBOSITIES: Final = ("low", "medium", "high")
TIERS: Final = ("auto", "default", "flex", "priority", "scale")
MAX_METADATA: Final = 16
MAX_VARIABLES: Final = 64
MAX_NESTING: Final = 8
MAX_BAD_WORDS: Final = 128
MAX_BAD_WORD_CHARACTERS: Final = 128
MAX_STOP_TOKENS: Final = 64
TEMPLATES_OWN: Final = frozenset({"messages", "add_generation_prompt", "tools", "chat_template"})


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How a prompt becomes tokens, and who may use its cached prefix."""

    variables: Mapping[str, Any] = field(default_factory=dict)  # of the chat template
    truncate: int | None = None  # keeps the last so many tokens; −1: as many as the context has room for
    cache_salt: str = ""


def descriptive(body: Object) -> None:
    """Checks the fields without an effect. Raises BadRequest."""
    for name in ("user", "safety_identifier", "prompt_cache_key"):
        text(body, name, 1024)
    boolean(body, "store")
    choice(body, "service_tier", TIERS)
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
    truncate = integer(body, "truncate_prompt_tokens", -1, 2**31)
    if truncate == 0:
        raise invalid("truncate_prompt_tokens", "must be −1, for what the context has room for, or at least 1")
    salt = text(body, "cache_salt", 1024)
    if salt == "":
        raise invalid("cache_salt", "must not be empty")
    return PromptOptions(truncate=truncate, cache_salt=salt or "")


def chat_options(body: Object) -> PromptOptions:
    """Parses the fields of a chat's prompt: those of a completion, and variables of the template. Raises BadRequest."""
    options = prompt_options(body)
    variables = dict(_template_variables(body.get("chat_template_kwargs")))
    for name, allowed in (("reasoning_effort", EFFORTS), ("verbosity", VERBOSITIES)):
        if (value := choice(body, name, allowed)) is not None:
            variables[name] = value
    return PromptOptions(variables, options.truncate, options.cache_salt)


def display(body: Object) -> Display:
    """Parses what of an output is shown besides its text. Raises BadRequest."""
    return Display(
        special_tokens=not boolean(body, "skip_special_tokens", True),
        stop_string=boolean(body, "include_stop_str_in_output"),
    )


def stop_token_ids(body: Object) -> tuple[int, ...]:
    """Returns the ids, not yet checked against the width of the logits. Raises BadRequest."""
    value = body.get("stop_token_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_STOP_TOKENS:
        raise invalid("stop_token_ids", f"must be a list of at most {MAX_STOP_TOKENS} token ids")
    if any(type(each) is not int or not 0 <= each < 2**31 for each in value):
        raise invalid("stop_token_ids", "must hold token ids")
    return tuple(value)


def bad_words(body: Object) -> tuple[str, ...]:
    """Returns the words that the output must not contain. Raises BadRequest."""
    if body.get("bad_words") in (None, []):
        return ()
    return strings(body, "bad_words", MAX_BAD_WORDS, MAX_BAD_WORD_CHARACTERS)


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
