"""Translates a body of Anthropic's Messages API into one of a chat, which is then parsed as any other chat."""

import json
from collections.abc import Mapping
from typing import Any, Final

from sluice import contract
from sluice_engine.server.api.anthropic import request_form as form
from sluice_engine.server.api.fields import Object, boolean, invalid, only
from sluice_engine.server.api.origins import Origins
from sluice_engine.server.errors import Unsupported

ERROR: Final = "Error"  # begins the result of a tool that failed
_ORIGINS: Final = {
    "reasoning_effort": "output_config.effort",
    "user": "metadata.user_id",
    "stop": "stop_sequences",
    "continue_final_message": "messages",
}


class ThreadUnsupported(Unsupported):
    """The request continues a conversation that the server should keep. Anthropic's clients then send all of it."""

    details: Mapping[str, Any] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}

    def __init__(self) -> None:
        super().__init__("thread is not supported, because no conversation is stored. Send all messages.", "thread")


def chat_body(body: Object, *, counting: bool = False) -> tuple[Object, Origins]:
    """Returns the body of the same request as a chat, and where its fields come from. `counting`: max_tokens may be missing.

    Raises BadRequest, Unsupported.
    """
    if body.get("thread") is not None:
        raise ThreadUnsupported
    only(body, form.FIELDS)
    for each in form.UNSUPPORTED:
        each.check(body)
    form.SERVICE_TIER.of(body)
    if body.get("max_tokens") is None and not counting:
        raise invalid("max_tokens", "is required: the number of tokens that the answer may have")
    chat: Object = {name: body[name] for name in form.SAME if body.get(name) is not None}
    origins = Origins(_ORIGINS)
    chat["messages"] = _messages(body, origins)
    if _is_prefix(chat["messages"][-1]):
        chat["continue_final_message"] = True
    _clear_thoughts(chat["messages"], body.get("context_management"))
    if stops := form.STOP_SEQUENCES.of(body):
        chat["stop"] = list(stops)
    if (user := _user_id(body.get("metadata"))) is not None:
        chat["user"] = user
    tools, choice = _tools(body.get("tools"), origins), _choice(body.get("tool_choice"))
    if tools:
        chat |= {"tools": tools} | choice
    elif choice.get("tool_choice") not in (None, "auto", "none"):
        raise invalid("tool_choice", "asks for a call and needs tools")
    chat |= _output(body, origins)
    if body.get("thinking") is not None:
        chat["chat_template_kwargs"] = {"enable_thinking": _thinks(body["thinking"])}
    return chat, origins


def _user_id(metadata: Any) -> str | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("user_id"), str | None):
        raise invalid("metadata", "must be an object whose user_id is a string")
    return metadata.get("user_id")


def _system(system: Any) -> list[Object]:
    if system is None or system == []:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    texts = [_text_of(block, f"system[{place}]") for place, block in enumerate(_blocks(system, "system"))]
    content = "".join(text for text in texts if not text.startswith(contract.ATTRIBUTION))
    return [{"role": "system", "content": content}] if content else []


def _messages(body: Object, origins: Origins) -> list[Object]:
    messages, found = body.get("messages"), _system(body.get("system"))
    if found:
        origins.add("messages[0].content", "system")
    if not isinstance(messages, list) or not 1 <= len(messages) <= form.MAX_MESSAGES:
        raise invalid("messages", f"is required: a list of 1 to {form.MAX_MESSAGES} messages")
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict) or message.get("role") not in form.ROLES:
            raise invalid(where, "must be an object with the role user, assistant or system, and content")
        only(message, form.MESSAGE, f"{where}.")
        content = message.get("content")
        origins.add(f"messages[{len(found)}]", where)
        if isinstance(content, str):
            found.append({"role": message["role"], "content": content})
        elif message["role"] == "system":
            found.append({"role": "system", "content": _text(content, f"{where}.content")})
        elif message["role"] == "user":
            _add_user(found, content, f"{where}.content", origins)
        else:
            _add_assistant(found, content, f"{where}.content", origins)
    return found


def _is_prefix(last: Object) -> bool:
    """Whether the answer goes on from the last message, which Anthropic's API does with a text of the assistant."""
    return bool(last["role"] == "assistant" and last["content"] and not last.get("tool_calls"))


def _add_user(messages: list[Object], content: Any, where: str, origins: Origins) -> None:
    """Results of tools are messages of their own, before the user's text."""
    texts = []
    for place, block in enumerate(_blocks(content, where)):
        if block.get("type") == "tool_result":
            given = block.get("content")
            text = given if isinstance(given, str) else _text(given, f"{where}[{place}].content") if given else ""
            if _is_error(block, f"{where}[{place}].is_error") and not text.lower().startswith(ERROR.lower()):
                text = f"{ERROR}: {text}" if text else ERROR
            chat = f"messages[{len(messages)}]"
            origins.add(f"{chat}.tool_call_id", f"{where}[{place}].tool_use_id")
            origins.add(f"{chat}.content", f"{where}[{place}].content")
            messages.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text})
        else:
            texts.append(_text_of(block, f"{where}[{place}]"))
    if texts:
        origins.add(f"messages[{len(messages)}].content", where)
        messages.append({"role": "user", "content": "".join(texts)})


def _is_error(result: Object, where: str) -> bool:
    """Whether the tool failed. The model learns it from the text: the messages of a chat have no such field."""
    return boolean({where: result.get("is_error")}, where)


def _add_assistant(messages: list[Object], content: Any, where: str, origins: Origins) -> None:
    calls, texts, thoughts, chat = list[Object](), [], [], f"messages[{len(messages)}].tool_calls"
    origins.add(chat, where)
    for place, block in enumerate(_blocks(content, where) if content != [] else []):  # [] is an answer without text
        if block.get("type") == "tool_use":
            if not isinstance(block.get("name"), str):
                raise invalid(f"{where}[{place}].name", "must be a string")
            if not isinstance(block.get("input"), dict | None):
                raise invalid(f"{where}[{place}].input", "must be an object")
            origins.add(f"{chat}[{len(calls)}]", f"{where}[{place}]")
            origins.add(f"{chat}[{len(calls)}].function.arguments", f"{where}[{place}].input")
            function = {"name": block["name"], "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif block.get("type") == "thinking":
            if not isinstance(block.get("thinking"), str):
                raise invalid(f"{where}[{place}].thinking", "must be a string")
            thoughts.append(block["thinking"])
        elif block.get("type") != "redacted_thinking":
            texts.append(_text_of(block, f"{where}[{place}]"))
    message: Object = {"role": "assistant", "content": "".join(texts), "reasoning": "\n\n".join(thoughts)}
    messages.append(message | ({"tool_calls": calls} if calls else {}))


def _text(content: Any, where: str) -> str:
    return "".join(_text_of(block, f"{where}[{place}]") for place, block in enumerate(_blocks(content, where)))


def _text_of(block: Object, where: str) -> str:
    if block.get("type") != "text":
        raise Unsupported(
            f"{where}.type {block.get('type')!r} is not supported: only text is. Leave the block out, or send it as text.",
            param=f"{where}.type",
        )
    if not isinstance(block.get("text"), str):
        raise invalid(f"{where}.text", "must be a string")
    return str(block["text"])


def _blocks(content: Any, where: str) -> list[Object]:
    if not isinstance(content, list) or not content or not all(isinstance(block, dict) for block in content):
        raise invalid(where, "must be a string or a non-empty list of blocks")
    return content


def _tools(tools: Any, origins: Origins) -> list[Object]:
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise invalid("tools", "must be a list")
    found = []
    for place, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise invalid(f"tools[{place}]", "must be an object with name and input_schema")
        if tool.get("type") not in (None, "custom"):
            raise Unsupported(
                f"tools[{place}].type {tool['type']!r} is not supported: only tools that the client runs and that have an "
                "input_schema are. Leave it out.",
                param=f"tools[{place}].type",
            )
        only(tool, form.TOOL, f"tools[{place}].")
        for each in form.TOOL_NEUTRAL:
            each.check(tool, f"tools[{place}].")
        if not isinstance(tool.get(form.EAGER.name), bool | None):
            raise invalid(f"tools[{place}].{form.EAGER.name}", "must be true or false")
        function = {
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": tool.get("input_schema"),
            "strict": tool.get("strict"),
        }
        origins.add(f"tools[{place}].function", f"tools[{place}]")
        origins.add(f"tools[{place}].function.parameters", f"tools[{place}].input_schema")
        found.append({"type": "function", "function": function})
    return found


def _choice(choice: Any) -> Object:
    if choice is None:
        return {}
    if not isinstance(choice, dict) or choice.get("type") not in (*form.CHOICES, "tool"):
        raise invalid("tool_choice", "must be an object whose type is one of auto, any, tool, none")
    name = "tool_choice.disable_parallel_tool_use"
    single = boolean({name: choice.get("disable_parallel_tool_use")}, name)
    found: Object = {"parallel_tool_calls": not single}
    if choice["type"] == "tool":
        return found | {"tool_choice": {"type": "function", "function": {"name": choice.get("name")}}}
    return found | {"tool_choice": form.CHOICES[choice["type"]]}


def _clear_thoughts(messages: list[Object], management: Any) -> None:
    """Removes the thoughts that an edit asks to clear. Raises Unsupported for an edit that removes anything else."""
    if management is None:
        return
    if not isinstance(management, dict):
        raise invalid("context_management", "must be an object with edits")
    only(management, frozenset({"edits"}), "context_management.")
    edits = management.get("edits") or []
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise invalid("context_management.edits", "must be a list of objects with type")
    for place, edit in enumerate(edits):
        if edit.get("type") != form.CLEARED:
            where = f"context_management.edits[{place}].type"
            raise Unsupported(
                f"{where} {edit.get('type')!r} is not supported: the server removes only thoughts from a conversation. Leave "
                "it out, and send fewer messages.",
                param=where,
            )
        kept = _kept(edit.get("keep"), f"context_management.edits[{place}].keep")
        thinking = [message for message in messages if message.get("reasoning")]
        for message in thinking[: max(0, len(thinking) - kept)] if kept is not None else ():
            del message["reasoning"]


def _kept(keep: Any, where: str) -> int | None:
    """The number of answers that keep their thoughts; None for all."""
    if keep is None:
        return 1
    kind = keep.get("type") if isinstance(keep, dict) else keep
    if kind == "all":
        return None
    value = keep.get("value") if kind == "thinking_turns" else None
    if type(value) is not int or value < 1:
        raise invalid(where, "must be all, or an object with the type thinking_turns and a value of at least 1")
    return value


def _output(body: Object, origins: Origins) -> Object:
    """What output_config asks for, and output_format, which older clients send in its place."""
    config, given, where = body.get("output_config"), body.get("output_format"), "output_format"
    found: Object = {}
    if config is not None:
        if not isinstance(config, dict):
            raise invalid("output_config", "must be an object with format")
        only(config, frozenset({"format", "effort"}), "output_config.")
        if config.get("effort") is not None:
            found["reasoning_effort"] = config["effort"]
        if config.get("format") is not None:
            if given is not None:
                raise invalid("output_format", "and output_config.format exclude each other")
            given, where = config["format"], "output_config.format"
    if given is not None:
        if not isinstance(given, dict) or given.get("type") != "json_schema" or "schema" not in given:
            raise invalid(where, "must be an object {type: 'json_schema', schema}")
        for name in ("response_format", "response_format.json_schema"):
            origins.add(name, where)
        schema = {"name": "output", "schema": given["schema"]}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    return found


def _thinks(thinking: Any) -> bool:
    if not isinstance(thinking, dict) or thinking.get("type") not in form.THINKS:
        raise invalid("thinking", "must be an object whose type is enabled, adaptive or disabled")
    return bool(thinking["type"] != "disabled")
