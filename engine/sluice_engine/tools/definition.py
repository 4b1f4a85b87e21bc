"""What a request offers: functions with a JSON schema of their parameters, and whether one must be called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """One function. `parameters` is a JSON schema; None: it takes none. `strict`: it must be enforceable, and is
    enforced where calls are written under a grammar.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool = False

    def as_json(self) -> dict[str, Any]:
        """OpenAI's object, which chat templates expect."""
        schema = {"type": "object", "properties": {}} if self.parameters is None else dict(self.parameters)
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The tools of a request and how many calls its answer has.

    mode: `auto`, the model decides; `none`, no call; `required`, at least one; `named`, exactly one, of `name`.
    """

    tools: tuple[Tool, ...] = ()
    mode: Literal["auto", "none", "required", "named"] = "none"
    name: str = ""
    parallel: bool = True  # more than one call per answer

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools."""
        return frozenset(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call of an earlier answer, as a client sends it back."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object of chat templates; arguments are an object there, as transformers documents."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": dict(self.arguments)}}
