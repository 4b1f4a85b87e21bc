"""The fields of OpenAI's Responses API, as they are read and described."""

from typing import Final

from sluice_engine.server.api.fields import MAX_INTEGER, Object
from sluice_engine.server.api.generation import output_format, tool_fields
from sluice_engine.server.api.generation.accepted_fields import EFFORT, VERBOSITY
from sluice_engine.server.api.generation.request_schema import CHAT, MAX_COMPLETION_TOKENS
from sluice_engine.server.api.generation.sampling_fields import TOP_LOGPROBS
from sluice_engine.server.api.request_fields import (
    Choice,
    Fields,
    Flag,
    Form,
    Integer,
    Neutral,
    Record,
    fields,
    list_of,
    object_form,
    renamed_field,
)

SAME: Final = (
    "model", "temperature", "top_p", "stream", "store", "metadata", "user", "service_tier", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "parallel_tool_calls", "seed", "priority", "slo", "top_k", "min_p", "stop", "cache_salt",
    "chat_template_kwargs", "repetition_penalty", "presence_penalty", "frequency_penalty", "ignore_eos",
)  # fmt: skip
MAX_ITEMS: Final = 4096
ROLES: Final = ("user", "assistant", "system", "developer")
TEXT_PARTS: Final = ("input_text", "output_text", "text")
_STRING: Final[Object] = {"type": "string"}

BACKGROUND: Final = Flag("background")
TRUNCATION: Final = Choice("truncation", ("disabled", "auto"))
MAX_TOOL_CALLS: Final = Integer("max_tool_calls", 1, MAX_INTEGER)  # of tools that a server runs: there are none
OBFUSCATION: Final = Flag("stream_options.include_obfuscation")
STREAM_OPTIONS: Final = Record("stream_options", fields(OBFUSCATION))
UNSUPPORTED: Final = (Neutral("context_management", ([],)), Neutral("moderation", ()))
LOGPROBS: Final = "message.output_text.logprobs"  # the one part of an answer to include that this engine has
INCLUDE: Final = Form("include", {"type": "array", "items": _STRING})
CLIENT_METADATA: Final = Form("client_metadata", {"type": "object"})  # what Codex notes about its own turns
_PARTS: Final[Object] = {
    "type": "array",
    "items": {
        "anyOf": [
            object_form(
                fields(Form("type", {"enum": list(TEXT_PARTS)}), Form("text", _STRING)), ("type", "text"), more=True
            ),
            object_form(fields(Form("type", {"const": "refusal"})), ("type",), more=True),
        ]
    },
}
CONTENT: Final[Object] = {"anyOf": [_STRING, _PARTS]}
_ITEMS: Final[dict[str, Fields]] = {
    "message": fields(Form("role", {"enum": list(ROLES)}), Form("content", CONTENT)),
    "function_call": fields(Form("name", _STRING), Form("arguments", _STRING)),
    "function_call_output": fields(Form("output", CONTENT)),
    "reasoning": fields(),
}
ITEM: Final[Object] = {
    "anyOf": [
        object_form(
            {**known, **fields(Form("type", {"const": kind}))},
            tuple(known) if kind == "message" else (*known, "type"),
            more=True,
        )
        for kind, known in _ITEMS.items()
    ]
}
FORMAT: Final[Object] = {
    "anyOf": [
        object_form(fields(Form("type", {"enum": ["text", "json_object"]})), ("type",)),
        object_form(
            {**output_format.NAMED_SCHEMA, **fields(Form("type", {"const": "json_schema"}))},
            ("type", *output_format.NAMED_SCHEMA_REQUIRED),
        ),
    ]
}
_FUNCTION: Final = Form("type", {"const": "function"})
# What these describe has no effect here: OpenAI's programs, and tools that are found by a search.
TOOL_NEUTRAL: Final = (
    Neutral("allowed_callers", (["direct"],)), Neutral("defer_loading", (False,)), Neutral("async", (False,)),
    Neutral("output_schema", ()),
)  # fmt: skip
REASONING_NEUTRAL: Final = (Neutral("context", ("auto",)), Neutral("mode", ("standard",)))
REASONING: Final = fields(
    renamed_field(EFFORT, "effort"), Form("summary", {}), Form("generate_summary", {}), *REASONING_NEUTRAL
)
_FUNCTION_TOOL: Final = object_form({**tool_fields.FUNCTION, **fields(_FUNCTION, *TOOL_NEUTRAL)}, ("type", "name"))
_NAMESPACE: Final = object_form(
    fields(
        Form("type", {"const": "namespace"}),
        Form("name", _STRING),
        Form("tools", {"type": "array", "items": _FUNCTION_TOOL}),
    ),
    ("type", "name", "tools"),
    more=True,
)
_CACHED_SEARCH: Final = object_form(
    fields(Form("type", {"const": "web_search"}), Form("external_web_access", {"const": False})),
    ("type", "external_web_access"),
    more=True,
) | {"description": "Accepted and not offered to the model: the server has no index to search."}
TOOLS: Final = Form("tools", list_of({"anyOf": [_FUNCTION_TOOL, _NAMESPACE, _CACHED_SEARCH]}, 0, tool_fields.MAX_TOOLS))
_NAMED_CHOICE: Final = object_form(fields(_FUNCTION, Form("name", _STRING)), ("type", "name"), more=True)
_ALLOWED_CHOICE: Final = object_form(
    fields(
        Form("type", {"const": "allowed_tools"}),
        Form("mode", {"enum": ["auto", "required"]}),
        Form("tools", list_of(_NAMED_CHOICE, 1, tool_fields.MAX_TOOLS)),
    ),
    ("type", "mode", "tools"),
)
TOOL_CHOICE: Final = Form(
    "tool_choice",
    {"anyOf": [{"enum": list(tool_fields.MODES)}, _NAMED_CHOICE, tool_fields.NAMED_CHOICE, _ALLOWED_CHOICE]},
)
FIELDS: Final[Fields] = {
    **{name: CHAT[name] for name in SAME},
    **fields(
        Form("input", {"anyOf": [{"type": "string", "minLength": 1}, list_of(ITEM, 1, MAX_ITEMS)]}),
        Form("instructions", _STRING),
        renamed_field(MAX_COMPLETION_TOKENS, "max_output_tokens"),
        TOOLS,
        TOOL_CHOICE,
        Form("text", object_form(fields(Form("format", FORMAT), VERBOSITY))),
        Form("reasoning", object_form(REASONING)),
        *(Neutral(name, ()) for name in ("previous_response_id", "conversation")),
        *UNSUPPORTED,
        Neutral("prompt", ({}, [], "", False, 0)),
        TOP_LOGPROBS,
        Neutral(BACKGROUND.name, (False,)),
        TRUNCATION,
        MAX_TOOL_CALLS,
        STREAM_OPTIONS,
        INCLUDE,
        CLIENT_METADATA,
    ),
}
REQUIRED: Final = ("model", "input")
