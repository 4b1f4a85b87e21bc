"""Translates a body of OpenAI's Responses API into one of a chat, which is then parsed as any other chat."""

from typing import Any, Final

from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.generation.sampling_fields import TOP_LOGPROBS
from sluice_engine.server.api.origins import Origins
from sluice_engine.server.api.responses import request_form as form
from sluice_engine.server.api.responses.tools import chat_tools, flat_name
from sluice_engine.server.errors import Unsupported

_ORIGINS: Final = {
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}


def chat_body(body: Object) -> tuple[Object, Origins]:
    """Returns the body of the same request as a chat, and where its fields come from. Raises BadRequest, Unsupported."""
    origins = Origins(_ORIGINS)
    only(body, form.FIELDS)
    _refuse(body)
    chat: Object = {name: body[name] for name in form.SAME if body.get(name) is not None}
    chat["messages"] = _messages(body, origins)
    top = TOP_LOGPROBS.of(body)
    if top or form.LOGPROBS in (body.get("include") or ()):
        chat |= {"logprobs": True, "top_logprobs": top or 0}
    if form.TRUNCATION.of(body) == "auto":
        chat["truncate_prompt_tokens"] = -1
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    if body.get("tools") is not None:
        chat["tools"] = chat_tools(body["tools"], origins)
    if body.get("tool_choice") is not None and (chat.get("tools") or body["tool_choice"] != "auto"):
        chat["tool_choice"] = _tool_choice(body["tool_choice"])  # auto without tools asks for nothing
    chat |= _text(body.get("text")) | _reasoning(body.get("reasoning"))
    return chat, origins


def _refuse(body: Object) -> None:
    if body.get("previous_response_id") is not None or body.get("conversation") is not None:
        name = "previous_response_id" if body.get("previous_response_id") is not None else "conversation"
        raise Unsupported(
            f"{name} is not supported: this server stores no responses (store has no effect). Send the earlier items "
            f"of the conversation in input.",
            param=name,
        )
    if body.get("prompt"):
        raise Unsupported("prompt is not supported: no prompts are stored. Send its text in input.", param="prompt")
    if form.BACKGROUND.of(body):
        raise Unsupported("background is not supported: responses are not stored. Use stream.", param="background")
    for each in form.UNSUPPORTED:
        each.check(body)
    form.MAX_TOOL_CALLS.of(body)
    form.OBFUSCATION.of(form.STREAM_OPTIONS.of(body))
    if not isinstance(body.get("client_metadata"), dict | None):
        raise invalid("client_metadata", "must be an object")
    included = body.get("include")
    if included is not None and not (isinstance(included, list) and all(isinstance(each, str) for each in included)):
        raise invalid("include", "must be a list of strings")


def _messages(body: Object, origins: Origins) -> list[Object]:
    messages: list[Object] = []
    instructions = body.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise invalid("instructions", "must be a string")
        messages.append({"role": "system", "content": instructions})
        origins.add("messages[0].content", "instructions")
    given = body.get("input")
    if isinstance(given, str) and given:
        origins.add(f"messages[{len(messages)}].content", "input")
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not 1 <= len(given) <= form.MAX_ITEMS:
        raise invalid("input", f"is required: a non-empty string, or a list of 1 to {form.MAX_ITEMS} items")
    for place, item in enumerate(given):
        _add(messages, item, f"input[{place}]", origins)
    return messages


def _add(messages: list[Object], item: Any, where: str, origins: Origins) -> None:
    if not isinstance(item, dict):
        raise invalid(where, "must be an object")
    match item.get("type", "message"):
        case "message":
            message = _message(item, where)
            if message["role"] == "assistant" and _is_reasoning(messages):
                message["reasoning"] = messages.pop()["reasoning"]
            origins.add(f"messages[{len(messages)}]", where)
            messages.append(message)
        case "function_call":
            _add_call(messages, item, where, origins)
        case "function_call_output":
            output, chat = item.get("output"), f"messages[{len(messages)}]"
            text = output if isinstance(output, str) else _content(output, f"{where}.output")
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
            origins.add(f"{chat}.tool_call_id", f"{where}.call_id")
            origins.add(f"{chat}.content", f"{where}.output")
        case "reasoning":
            _add_reasoning(messages, item)
        case "item_reference":
            raise Unsupported(
                f"{where} refers to an item of an earlier response, and this server stores none. Send the item itself; clients "
                "do so with store: false.",
                param=f"{where}.type",
            )
        case other:
            raise Unsupported(f"{where}.type {other!r} is not supported by this engine.", param=f"{where}.type")


def _add_reasoning(messages: list[Object], item: Object) -> None:
    """Reasoning belongs to one message of a chat with the answer's text and calls. An encrypted one cannot be read."""
    parts = item.get("content") or item.get("summary")
    given = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    texts = [each for each in given if isinstance(each, str)]
    if not any(texts):
        return
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1]["reasoning"] = "\n\n".join(filter(None, (messages[-1].get("reasoning"), *texts)))


def _is_reasoning(messages: list[Object]) -> bool:
    """Whether the last message is only reasoning so far."""
    return bool(messages) and messages[-1].get("content", "") is None and not messages[-1].get("tool_calls")


def _add_call(messages: list[Object], item: Object, where: str, origins: Origins) -> None:
    """Calls follow the text of their answer in one message of a chat."""
    for name in ("name", "arguments"):
        if not isinstance(item.get(name), str):
            raise invalid(f"{where}.{name}", "must be a string")
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    calls = messages[-1].setdefault("tool_calls", [])
    chat = f"messages[{len(messages) - 1}].tool_calls"
    origins.add(chat, "input")
    origins.add(f"{chat}[{len(calls)}]", where)
    origins.add(f"{chat}[{len(calls)}].function", where)
    function = {"name": flat_name(item.get("namespace"), item["name"]), "arguments": item["arguments"]}
    calls.append({"id": item.get("call_id"), "type": "function", "function": function})


def _message(item: Object, where: str) -> Object:
    if item.get("role") not in form.ROLES:
        raise invalid(f"{where}.role", f"must be one of {', '.join(form.ROLES)}")
    content = item.get("content")
    return {
        "role": item["role"],
        "content": content if isinstance(content, str) else _content(content, f"{where}.content"),
    }


def _content(parts: Any, where: str) -> str:
    if not isinstance(parts, list):
        raise invalid(where, "must be a string or a list of text parts")
    texts = []
    for place, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal":
            texts.append(str(part.get("refusal") or ""))
        elif kind in form.TEXT_PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            raise Unsupported(
                f"{where}[{place}] is no text, and only text is supported. Leave it out, or describe it as text.",
                param=f"{where}[{place}]",
            )
    return "".join(texts)


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function" and "name" in choice:
        return {"type": "function", "function": {"name": flat_name(choice.get("namespace"), choice["name"])}}
    if choice.get("type") == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_tool_choice(each) for each in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}
    return choice


def _text(text: Any) -> Object:
    if text is None:
        return {}
    if not isinstance(text, dict):
        raise invalid("text", "must be an object with format")
    only(text, frozenset({"format", "verbosity"}), "text.")
    found: Object = {} if text.get("verbosity") is None else {"verbosity": text["verbosity"]}
    given = text.get("format")
    if isinstance(given, dict) and given.get("type") == "json_schema":
        schema = {name: value for name, value in given.items() if name != "type"}
        return found | {"response_format": {"type": "json_schema", "json_schema": schema}}
    return found if given is None else found | {"response_format": given}


def _reasoning(reasoning: Any) -> Object:
    if reasoning is None:
        return {}
    if not isinstance(reasoning, dict):
        raise invalid("reasoning", "must be an object with effort")
    only(reasoning, form.REASONING, "reasoning.")
    for each in form.REASONING_NEUTRAL:
        each.check(reasoning, "reasoning.")
    return {} if reasoning.get("effort") is None else {"reasoning_effort": reasoning["effort"]}
