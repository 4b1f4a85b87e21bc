"""Renders the model's chat template in a sandbox and separates template text from user text.

A template comes with the model, not with a request, but still runs in an immutable sandbox. User content must stay
text: control tokens in it (`<|im_start|>`) are replaced by random markers before rendering. Afterwards the original
strings are encoded as plain characters, and only the template's own control tokens become tokens.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser

from sluice_engine.text.template_budget import RENDER_SECONDS, BoundedEnvironment, TemplateFailed, TimeBudget

MAX_RENDERED_CHARACTERS = 16 * 1024 * 1024
# What a prompt ends with: the beginning of an answer, the text of the last message, which the output goes on from, or
# the end of the last message.
Ending = Literal["answer", "last_text", "last_message"]


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> None:
    raise TemplateFailed(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's part for training; its body is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012  jinja2's own declaration is a plain set

    def parse(self, parser: Parser) -> list[Node]:
        """Parse the body between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> BoundedEnvironment:
    # Same settings as transformers' apply_chat_template, because templates are written for them.
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One compiled template. `control`: strings that the tokenizer would turn into added tokens. Raises
    TemplateFailed.
    """

    def __init__(self, source: str, control: Iterable[str], variables: Mapping[str, str]) -> None:
        self.source = source
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateFailed(f"the chat template does not compile: {error}") from error
        self._variables = dict(variables)
        longest_first = sorted((re.escape(token) for token in control if token), key=len, reverse=True)
        self._control = re.compile("|".join(longest_first)) if longest_first else None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] = MappingProxyType({}),
        seconds: float = RENDER_SECONDS,
        ending: Ending = "answer",
    ) -> list[tuple[str, bool]]:
        """The prompt as pieces of (text, plain); control tokens are recognised only where `plain` is false. `variables`
        come from the request: strings in them stay text, and they replace none of the model's own variables. `seconds`
        of processor time are the most that it takes.

        Raises TemplateFailed, TemplateSlow.
        """
        nonce = f"\ue000{secrets.token_hex(8)}:"
        spelled: list[str] = []

        def mark(found: re.Match[str]) -> str:
            spelled.append(found.group())
            return f"{nonce}{len(spelled) - 1}\ue001"

        def shield(text: str) -> str:
            return self._control.sub(mark, text) if self._control is not None else text

        shielded: list[dict[str, Any]] = [_mapped(dict(message), shield) for message in messages]
        end = f"{nonce}end\ue001"
        if ending == "last_text":
            shielded[-1]["content"] += end  # found again, also where the template trims or moves the text
        given = {name: _mapped(value, shield) for name, value in variables.items()}
        rendered = self._run(shielded, given | {"add_generation_prompt": ending == "answer"}, seconds)
        if ending == "last_text":
            rendered, found, _ = rendered.rpartition(end)
            if not found:
                raise TemplateFailed(
                    "the chat template leaves out the end of the last message, so no answer can go on from it; end with a message of the user"
                )
        if not spelled:
            return [(rendered, False)]
        pieces: list[tuple[str, bool]] = []
        for index, part in enumerate(re.split(f"{re.escape(nonce)}(\\d+)\ue001", rendered)):
            plain = index % 2 == 1
            text = spelled[int(part)] if plain else part
            if text:
                pieces.append((text, plain))
        return pieces

    def _run(self, messages: list[dict[str, Any]], variables: dict[str, Any], seconds: float) -> str:
        try:
            given = {**variables, **self._variables, "messages": messages}
            given |= TimeBudget(seconds).variables()
            parts: list[str] = []
            size = 0
            for part in self._template.generate(given):
                size += len(part)
                if size > MAX_RENDERED_CHARACTERS:
                    raise TemplateFailed("the rendered prompt is too long")
                parts.append(part)
            return "".join(parts)
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            AttributeError,
            RecursionError,
        ) as error:
            raise TemplateFailed(f"the chat template cannot render these messages: {error}") from error


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with every string in it changed; the nesting is bounded where a request is parsed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(entry, change) for entry in value]
    if isinstance(value, dict):
        return {change(name): _mapped(entry, change) for name, entry in value.items()}
    return value
