"""The entries of /v1/models, which the clients of OpenAI and of Anthropic both read.

Neither's names contradict the other's, so one document serves both, and a gateway can merge the lists of its engines.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

Entry = dict[str, Any]


def model_entry(name: str, created: int, context: int | None = None) -> Entry:
    """One model, `created` in seconds since 1970. `context`: the most tokens of prompt and answer, if known."""
    lengths = {"max_model_len": context, "max_input_tokens": context}
    openai = {"id": name, "object": "model", "created": created, "owned_by": "sluice"}
    since = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    return {**openai, **lengths, "type": "model", "display_name": name, "created_at": since, "lifecycle": "active"}


def models_document(entries: Sequence[Entry]) -> Entry:
    """The list of all `entries`: one page, whatever a client asks for."""
    ends = (
        {"first_id": entries[0]["id"], "last_id": entries[-1]["id"]} if entries else {"first_id": None, "last_id": None}
    )
    return {"object": "list", "data": [*entries], "has_more": False, **ends}
