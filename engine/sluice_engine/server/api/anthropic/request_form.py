"""The fields of Anthropic's Messages API, as they are read and described."""

from typing import Final

from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation import accepted_fields, tool_fields
from sluice_engine.server.api.generation.request_schema import CHAT, MAX_TOKENS
from sluice_engine.server.api.generation.sampling_fields import MAX_STOP_CHARACTERS, STOP
from sluice_engine.server.api.request_fields import (
    Choice,
    Fields,
    Flag,
    Form,
    Neutral,
    Strings,
    fields,
    list_of,
    object_form,
)

SAME: Final = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "stream",
    "max_tokens",
    "priority",
    "slo",
    "seed",
    "cache_salt",
)
MAX_MESSAGES: Final = 4096
MAX_STOP_SEQUENCES: Final = 64  # Anthropic's API states no limit; each costs memory and time per character of output
CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
ROLES: Final = ("user", "assistant", "system")
THINKS: Final = ("enabled", "disabled", "adaptive")

CLEARED: Final = "clear_thinking_20251015"  # an edit of the context that leaves out the thoughts of old answers

_STRING: Final[Object] = {"type": "string"}
_TEXT: Final = object_form(fields(Form("type", {"const": "text"}), Form("text", _STRING)), ("type", "text"), more=True)
_TEXTS: Final[Object] = {"anyOf": [_STRING, {"type": "array", "items": _TEXT, "minItems": 1}]}
_BLOCKS: Final = (
    _TEXT,
    object_form(fields(Form("type", {"const": "tool_use"}), Form("name", _STRING)), ("type", "name"), more=True),
    object_form(fields(Form("type", {"const": "tool_result"}), Form("content", _TEXTS)), ("type",), more=True),
    object_form(
        fields(Form("type", {"const": "thinking"}), Form("thinking", _STRING)), ("type", "thinking"), more=True
    ),
    object_form(fields(Form("type", {"const": "redacted_thinking"})), ("type",), more=True),
)
MESSAGE: Final = fields(
    Form("role", {"type": "string", "enum": list(ROLES)}),
    Form("content", {"anyOf": [_STRING, {"type": "array", "items": {"anyOf": list(_BLOCKS)}, "minItems": 1}]}),
)
MESSAGES: Final = Form("messages", list_of(object_form(MESSAGE, ("role", "content")), 1, MAX_MESSAGES))
EAGER: Final = Flag("eager_input_streaming")  # arguments are always streamed as they are written
# What these describe has no effect here: tools that are found by a search, and calls from a program.
TOOL_NEUTRAL: Final = (
    Neutral("defer_loading", (False,)), Neutral("allowed_callers", (["direct"],)), Neutral("input_examples", ([],)),
)  # fmt: skip
TOOL: Final[Fields] = {
    **{name: tool_fields.FUNCTION[name] for name in ("name", "description", "strict")},
    **fields(
        Form("input_schema", tool_fields.PARAMETERS),
        Form("type", {"const": "custom"}),
        Form("cache_control", {}),
        EAGER,
        *TOOL_NEUTRAL,
    ),
}
TOOLS: Final = Form("tools", list_of(object_form(TOOL, ("name",)), 0, tool_fields.MAX_TOOLS))
TOOL_CHOICE: Final = Form(
    "tool_choice",
    object_form(
        fields(
            Form("type", {"type": "string", "enum": [*CHOICES, "tool"]}),
            Form("disable_parallel_tool_use", {"type": "boolean"}),
            Form("name", _STRING),
        ),
        ("type",),
        more=True,
    ),
)
THINKING: Final = Form(
    "thinking", object_form(fields(Form("type", {"type": "string", "enum": list(THINKS)})), ("type",), more=True)
)
SCHEMA: Final = object_form(
    fields(Form("type", {"const": "json_schema"}), Form("schema", {"type": ["object", "boolean", "string"]})),
    ("type", "schema"),
    more=True,
)
EFFORT: Final = Choice("effort", accepted_fields.EFFORTS)
OUTPUT_CONFIG: Final = Form("output_config", object_form(fields(EFFORT, Form("format", SCHEMA))))
USER_ID: Final = Form("metadata", object_form(fields(Form("user_id", _STRING)), more=True))
STOP_SEQUENCES: Final = Strings("stop_sequences", MAX_STOP_SEQUENCES, MAX_STOP_CHARACTERS, empty=True)
STOPS_OF_CHAT: Final = Strings(STOP.name, MAX_STOP_SEQUENCES, MAX_STOP_CHARACTERS)  # of the translated body
SERVICE_TIER: Final = Choice("service_tier", ("auto", "standard_only"))
OUTPUT_FORMAT: Final = Form("output_format", SCHEMA)  # the older name of output_config.format
CONTEXT_MANAGEMENT: Final = Form(
    "context_management",
    object_form(
        fields(
            Form("edits", {"type": "array", "items": object_form(fields(Form("type", {"const": CLEARED})), more=True)})
        )
    ),
)
UNSUPPORTED: Final = (
    Neutral("container", ()), Neutral("mcp_servers", ([],)), Neutral("inference_geo", ()), Neutral("speed", ("standard",)),
    Neutral("fallbacks", ([],)), Neutral("compaction", ()),
)  # fmt: skip
FIELDS: Final[Fields] = {
    **{name: CHAT[name] for name in SAME},
    **fields(
        MESSAGES,
        Form("system", {"anyOf": [_STRING, {"type": "array", "items": _TEXT}]}),
        STOP_SEQUENCES,
        USER_ID,
        TOOLS,
        TOOL_CHOICE,
        THINKING,
        SERVICE_TIER,
        OUTPUT_CONFIG,
        OUTPUT_FORMAT,
        CONTEXT_MANAGEMENT,
        *UNSUPPORTED,
        Form("cache_control", {}),
    ),
}
REQUIRED: Final = ("model", "messages", MAX_TOKENS.name)
COUNTING_REQUIRED: Final = ("model", "messages")
