"""Base of every API type: frozen, camelCase in YAML and JSON, and each validation rule written once.

A rule that spans fields is one `Rule` next to these fields: the CEL expression that the API server evaluates, the
predicate that `sluice up` evaluates, and the message that both print.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

BROKEN_RULES = "broken_rules"  # type of the pydantic error that carries the messages of the broken rules


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule over the fields of one type. `holds` is None if the rule reads `oldSelf`: only the API server
    can evaluate such a rule.
    """

    cel: str
    sentence: str
    holds: Callable[[Any], bool] | None


class Model(BaseModel):
    """Base of every API type: frozen, camelCase in JSON, unknown fields rejected, descriptions from docstrings."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        broken = [rule.sentence for rule in self.RULES if rule.holds is not None and not rule.holds(self)]
        if broken:
            raise PydanticCustomError(BROKEN_RULES, "{text}", {"text": "; ".join(broken), "sentences": broken})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of the type, with its rules as `x-kubernetes-validations`."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.RULES:
            schema["x-kubernetes-validations"] = [{"rule": r.cel, "message": r.sentence} for r in cls.RULES]
        return schema
