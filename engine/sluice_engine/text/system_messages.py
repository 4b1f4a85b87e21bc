"""Several system messages for a chat template that refuses all but one at the beginning (Mistral's, Qwen 3.5's).

Coding agents send them: Codex CLI begins with two, and Claude Code adds one behind the first question.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

SEPARATOR: Final = "\n\n"


def with_one_system_message(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Returns the messages with at most one system message, at the beginning; None if that is so already.

    System messages at the beginning become one. A later one becomes text of the user, where it stands: that lowers its
    authority, which is the most that such a template can express.
    """
    leading = len(list(takewhile(_is_system, messages)))
    if leading <= 1 and not any(map(_is_system, messages[leading:])):
        return None
    first = SEPARATOR.join(message["content"] for message in messages[:leading])
    found: list[dict[str, Any]] = [{"role": "system", "content": first}] if leading else []
    moved = False
    for message in messages[leading:]:
        behind_moved, moved = moved, _is_system(message)
        joins = moved or (behind_moved and message["role"] == "user")  # such templates want turns to alternate
        if joins and found and found[-1]["role"] == "user":
            found[-1]["content"] += SEPARATOR + message["content"]
        else:
            found.append({**message, "role": "user"} if moved else dict(message))
    return found


def _is_system(message: Mapping[str, Any]) -> bool:
    return bool(message["role"] == "system")
