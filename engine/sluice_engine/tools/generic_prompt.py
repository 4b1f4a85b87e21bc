"""Tools for a model whose chat template knows none: a system message describes them, and calls are written as text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sluice_engine.tools.definition import Tool

_HEAD = """You can call functions. Their signatures, one JSON object per line:
<tools>
{tools}
</tools>
To call a function, answer only with a JSON object in this form, once per call:
<tool_call>
{{"name": "function_name", "arguments": {{"argument": "value"}}}}
</tool_call>
Otherwise answer in words."""


def with_tools(messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The messages as plain roles and text: tools in the first system message, calls and results as text."""
    plain = [_plain(message) for message in messages]
    if tools:
        listed = "\n".join(json.dumps(tool.as_json()["function"], ensure_ascii=False) for tool in tools)
        head = _HEAD.format(tools=listed)
        if plain and plain[0]["role"] == "system":
            plain[0]["content"] = f"{plain[0]['content']}\n\n{head}"
        else:
            plain.insert(0, {"role": "system", "content": head})
    return plain


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = "\n".join(
        f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>"
        for call in message.get("tool_calls") or ()
    )
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return kept | {"content": "\n".join(part for part in (content, calls) if part)}
