"""Parses a document into an `LLMDeployment`, or reports one sentence per fault.

The API server enforces the same rules by its schema. This module covers files given to `sluice up`, and objects that
were stored before a rule existed.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sluice import contract
from sluice_operator.api import base
from sluice_operator.api.llmdeployment import LLMDeployment
from sluice_operator.api.patterns import PATTERN_WORDS
from sluice_operator.api.spec import unknown_zones

_TOP_LEVEL: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_SHOWN: Final = 60  # characters of an invalid value that a fault quotes


class InvalidResource(ValueError):
    """The document is not a valid LLMDeployment. `faults` has one sentence per fault, each naming its field."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def parse(document: Mapping[str, Any], *, strict: bool = True) -> LLMDeployment:
    """Return the resource that a document describes.

    strict: reject unknown fields, as `kubectl --validate=strict` does, and schedules in unknown time zones (for files
    written by users). Otherwise drop unknown fields, as the API server does, and keep such schedules, which never begin
    (for stored objects, which may have been written under a newer schema).

    Raises InvalidResource.
    """
    faults = list(_envelope_faults(document, strict)) if isinstance(document, Mapping) else []
    try:
        text = json.dumps(document, default=str)  # YAML dates become strings, as in the API server
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidResource((f"the document cannot be written as JSON: {error}",)) from error
    try:
        resource = _read(text, strict)
    except ValidationError as error:
        raise InvalidResource((*faults, *_sentences(error))) from error
    if strict:
        faults.extend(unknown_zones(resource.spec.scaling.schedules))
    if faults:
        raise InvalidResource(tuple(faults))
    return resource


def _read(text: str, strict: bool) -> LLMDeployment:
    try:
        return LLMDeployment.model_validate_json(text, strict=True)
    except ValidationError as error:
        unknown = [e["loc"] for e in error.errors(include_input=False) if e["type"] == "extra_forbidden"]
        if strict or not unknown:
            raise
    pruned = json.loads(text)
    for loc in unknown:
        _remove(pruned, loc)
    return LLMDeployment.model_validate_json(json.dumps(pruned), strict=True)


def _remove(document: Any, loc: Sequence[int | str]) -> None:
    for step in loc[:-1]:
        document = document[step]
    del document[loc[-1]]


def _envelope_faults(document: Mapping[str, Any], strict: bool) -> Iterator[str]:
    for field, wanted in (("apiVersion", contract.API_VERSION), ("kind", contract.KIND)):
        given = document.get(field)
        if given != wanted and (strict or given is not None):
            yield (
                f"{field} must be {wanted}, not {_shown(given)}"
                if given is not None
                else f"{field} is required: {wanted}"
            )
    if strict:
        for field in document:
            if field not in _TOP_LEVEL:
                yield _unknown(str(field), str(field), _TOP_LEVEL)


def _sentences(error: ValidationError) -> tuple[str, ...]:
    return tuple(sentence for detail in error.errors() for sentence in _words_for(detail))


def _words_for(detail: ErrorDetails) -> tuple[str, ...]:
    kind, limits = detail["type"], detail.get("ctx", {})
    path, value = _path(detail["loc"]), detail["input"]
    match kind:
        case base.BROKEN_RULES:
            prefix = "spec." if detail["loc"] else ""
            return tuple(f"{prefix}{sentence}" for sentence in limits["sentences"])
        case "extra_forbidden":
            return (_unknown(path, str(detail["loc"][-1]), _fields_at(detail["loc"][:-1])),)
        case "missing":
            return (f"{path} is required",)
        case "greater_than_equal":
            return (f"{path} must be at least {limits['ge']}, not {_shown(value)}",)
        case "greater_than":
            return (f"{path} must be more than {limits['gt']}, not {_shown(value)}",)
        case "less_than_equal":
            return (f"{path} must be at most {limits['le']}, not {_shown(value)}",)
        case "string_too_long":
            return (f"{path} must be at most {limits['max_length']} characters long, not {len(value)}",)
        case "string_too_short":
            return (f"{path} must not be empty",)
        case "too_long":
            return (f"{path} must have at most {limits['max_length']} entries, not {limits['actual_length']}",)
        case "string_pattern_mismatch":
            wanted = PATTERN_WORDS.get(limits["pattern"], f"text that matches {limits['pattern']}")
            return (f"{path} must be {wanted}, not {_shown(value)}",)
        case "literal_error":
            return (f"{path} must be one of {limits['expected']}, not {_shown(value)}",)
        case _ if kind in _TYPES:
            return (f"{path} must be {_TYPES[kind]}, not {_shown(value)}",)
    return (f"{path}: {detail['msg']}",)


_TYPES: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
}


def _path(loc: Sequence[int | str]) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return path.removeprefix(".") or "the document"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _unknown(path: str, field: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(field[:_SHOWN], known, n=1, cutoff=0.6)
    return f"{_short(path)} is not a field" + (f": did you mean {near[0]}?" if near else "")


def _short(path: str) -> str:
    return path if len(path) <= 2 * _SHOWN else f"{path[: 2 * _SHOWN]}…"


def _fields_at(loc: Sequence[int | str]) -> tuple[str, ...]:
    """Return the field names that are valid at this location of the document."""
    model: Any = LLMDeployment
    for step in loc:
        if isinstance(step, int):
            continue
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        model = _model_in(fields.get(step))
        if model is None:
            return ()
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _model_in(annotation: Any) -> type[base.Model] | None:
    if isinstance(annotation, type) and issubclass(annotation, base.Model):
        return annotation
    inner = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)
