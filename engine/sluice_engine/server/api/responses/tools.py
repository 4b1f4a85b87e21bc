"""The tools of a Responses request as those of a chat, and a chat's calls as those of a response.

A namespace is a group of functions, such as those of one MCP server. The model reads and writes one flat name for each.
"""

from typing import Any, Final

from sluice_engine.server.api.fields import Object, invalid
from sluice_engine.server.api.origins import Origins
from sluice_engine.server.api.responses import request_form as form
from sluice_engine.server.errors import Unsupported

SEPARATOR: Final = "__"  # as MCP clients join the names of a server and a tool
CACHED_SEARCH: Final[Object] = {"type": "web_search", "external_web_access": False}


def chat_tools(tools: Any, origins: Origins) -> list[Object]:
    """Returns the functions as tools of a chat. Raises BadRequest, Unsupported."""
    if not isinstance(tools, list):
        raise invalid("tools", "must be a list")
    found: list[Object] = []
    for place, tool in enumerate(tools):
        where = f"tools[{place}]"
        if not isinstance(tool, dict):
            raise invalid(where, "must be an object")
        if tool.get("type") == "namespace":
            _add_namespace(found, tool, where, origins)
        elif not _searches_nothing(tool):
            _add_function(found, tool, where, origins)
    return found


def offered(tools: Any) -> Any:
    """Returns the tools that a response repeats: those that the model may call."""
    return [tool for tool in tools if not _searches_nothing(tool)] if isinstance(tools, list) else tools


def flat_name(namespace: Any, name: Any) -> Any:
    """Returns the name that the model reads for a function, which may be in a namespace."""
    if not isinstance(namespace, str) or not namespace or not isinstance(name, str):
        return name
    return f"{namespace}{'' if namespace.endswith(SEPARATOR) else SEPARATOR}{name}"


def namespaced(tools: Any) -> dict[str, Object]:
    """Returns, by flat name, the name and the namespace of each function in a namespace. The tools were checked."""
    return {
        flat_name(tool["name"], function["name"]): {"name": function["name"], "namespace": tool["name"]}
        for tool in tools or ()
        if tool["type"] == "namespace"
        for function in tool["tools"]
    }


def _searches_nothing(tool: Object) -> bool:
    """A search that must not use the web looks into an index of the server, which this one does not have."""
    return all(tool.get(name) == value for name, value in CACHED_SEARCH.items())


def _add_namespace(found: list[Object], tool: Object, where: str, origins: Origins) -> None:
    name, functions = tool.get("name"), tool.get("tools")
    if not isinstance(name, str) or not name:
        raise invalid(f"{where}.name", "is required and must be a string")
    if not isinstance(functions, list):
        raise invalid(f"{where}.tools", "must be a list of functions")
    for place, function in enumerate(functions):
        if not isinstance(function, dict):
            raise invalid(f"{where}.tools[{place}]", "must be an object")
        _add_function(found, function, f"{where}.tools[{place}]", origins, name)


def _add_function(found: list[Object], tool: Object, where: str, origins: Origins, namespace: str = "") -> None:
    if tool.get("type") != "function":
        raise Unsupported(
            f"{where}.type {tool.get('type')!r} is not supported: only functions are, which the client runs. Leave it out, "
            "or describe it as a function.",
            param=f"{where}.type",
        )
    for each in form.TOOL_NEUTRAL:
        each.check(tool, f"{where}.")
    left_out = ("type", *(each.name for each in form.TOOL_NEUTRAL))
    origins.add(f"tools[{len(found)}].function", where)
    function = {name: value for name, value in tool.items() if name not in left_out}
    found.append({"type": "function", "function": function | {"name": flat_name(namespace, tool.get("name"))}})
