"""Fields of a request as values: a field reads itself from a body, and describes itself in the OpenAPI document.

What is described is what is checked, because both come from the same numbers. A field whose value has a form of its own
is a `Form`: the module that reads it states the form beside the reader.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sluice_engine.server.api.fields import Object, boolean, choice, integer, invalid, number, only, strings, text
from sluice_engine.server.errors import Unsupported

NULL: Final[Object] = {"type": "null"}


class Field(Protocol):
    """One field. A dotted name is a field within an object."""

    @property
    def name(self) -> str:
        """The name."""

    def form(self) -> Object:
        """Returns the JSON schema of a value that is not null."""


Fields = Mapping[str, Field]


def fields(*given: Field) -> Fields:
    """Returns the fields by name."""
    return {field.name.rpartition(".")[2]: field for field in given}


def nullable(form: Object) -> Object:
    """Returns the schema of a value of this form, or null, which counts as absent."""
    if not form or form == NULL:
        return form
    if isinstance(form.get("type"), str) and "enum" not in form:
        return form | {"type": [form["type"], "null"]}
    return {"anyOf": [form, NULL]}


def object_form(known: Fields, required: Collection[str] = (), more: bool | Object = False) -> Object:
    """Returns the schema of an object with these fields. `more`: whether others are ignored, or their schema."""
    properties = {name: each.form() if name in required else nullable(each.form()) for name, each in known.items()}
    described: Object = {"type": "object", "properties": properties}
    if required:
        described["required"] = sorted(required)
    return described if more is True else described | {"additionalProperties": more}


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer in [low, high]."""

    name: str
    low: int
    high: int
    default: int | None = None

    def of(self, body: Object) -> int | None:
        """Returns the value. Raises BadRequest."""
        return integer(body, self.name, self.low, self.high, self.default)

    def form(self) -> Object:
        """Returns the schema."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high} | _default(self.default)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in [low, high], or in (low, high] with `above`."""

    name: str
    low: float
    high: float
    default: float
    above: bool = False

    def of(self, body: Object) -> float:
        """Returns the value. Raises BadRequest."""
        return number(body, self.name, self.low, self.high, self.default, above=self.above)

    def form(self) -> Object:
        """Returns the schema."""
        low = "exclusiveMinimum" if self.above else "minimum"
        described: Object = {"type": "number", low: self.low, "maximum": self.high}
        return described if self.above and self.default <= self.low else described | _default(self.default)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    name: str
    default: bool = False

    def of(self, body: Object) -> bool:
        """Returns the value. Raises BadRequest."""
        return boolean(body, self.name, self.default)

    def form(self) -> Object:
        """Returns the schema."""
        return {"type": "boolean", "default": self.default}


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most `longest` characters. `empty`: it may be empty."""

    name: str
    longest: int
    empty: bool = True

    def of(self, body: Object) -> str | None:
        """Returns the value. Raises BadRequest."""
        value = text(body, self.name, self.longest)
        if value == "" and not self.empty:
            raise invalid(self.name, "must not be empty")
        return value

    def form(self) -> Object:
        """Returns the schema."""
        return {"type": "string", "maxLength": self.longest} | ({} if self.empty else {"minLength": 1})


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the allowed strings."""

    name: str
    allowed: tuple[str, ...]

    def of(self, body: Object) -> str | None:
        """Returns the value. Raises BadRequest."""
        return choice(body, self.name, self.allowed)

    def form(self) -> Object:
        """Returns the schema."""
        return {"type": "string", "enum": list(self.allowed)}


@dataclass(frozen=True, slots=True)
class Strings:
    """One string, or a list of up to `most`, each of 1 to `longest` characters. `empty`: the list may be empty."""

    name: str
    most: int
    longest: int
    empty: bool = False

    def of(self, body: Object) -> tuple[str, ...]:
        """Returns the strings. Raises BadRequest."""
        return () if self.empty and body.get(self.name) == [] else strings(body, self.name, self.most, self.longest)

    def form(self) -> Object:
        """Returns the schema."""
        one = {"type": "string", "minLength": 1, "maxLength": self.longest}
        return {"anyOf": [one, list_of(one, 0 if self.empty else 1, self.most)]}


@dataclass(frozen=True, slots=True)
class Record:
    """An object with these fields, whose names are dotted."""

    name: str
    fields: Fields

    def of(self, body: Object) -> Object:
        """Returns the object with dotted names; empty where it is absent. Raises BadRequest."""
        value = body.get(self.name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise invalid(self.name, f"must be an object with {', '.join(self.fields)}")
        only(value, self.fields, f"{self.name}.")
        return {f"{self.name}.{name}": entry for name, entry in value.items()}

    def form(self) -> Object:
        """Returns the schema."""
        return object_form(self.fields)


@dataclass(frozen=True, slots=True)
class Neutral:
    """A field of the OpenAI API that this engine lacks: only values that request nothing are accepted.

    `instead`: what the client should do.
    """

    name: str
    accepted: tuple[object, ...]
    instead: str = "leave it out"

    def check(self, body: Object, prefix: str = "") -> None:
        """Raises Unsupported for any other value. `prefix`: of the name in the error."""
        value = body.get(self.name)
        if value is None or any(_equal(value, each) for each in self.accepted):
            return
        only = [json.dumps(each) for each in self.accepted]
        but = f", except as {' or '.join(only)}" if only else ""
        name = f"{prefix}{self.name}"
        raise Unsupported(f"{name} is not supported by this engine{but}; {self.instead}.", param=name)

    def form(self) -> Object:
        """Returns the schema."""
        return {"enum": list(self.accepted)} if self.accepted else NULL


@dataclass(frozen=True, slots=True)
class Form:
    """A field that its module reads, with the form that it has there."""

    name: str
    given: Object

    def form(self) -> Object:
        """Returns the schema."""
        return self.given


def list_of(item: Object, least: int, most: int) -> Object:
    """Returns the schema of a list of `least` to `most` items."""
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


def renamed_field(field: Field, name: str) -> Form:
    """Returns the same field under another name."""
    return Form(name, field.form())


def _equal(value: object, accepted: object) -> bool:
    """Whether a value is an accepted one: 1 is 1.0, and true is no number."""
    numbers = type(value) in (int, float) and type(accepted) in (int, float)
    return (numbers or type(value) is type(accepted)) and value == accepted


def _default(value: Any) -> Object:
    return {} if value is None else {"default": value}
