"""Token counts of one request: OpenAI's usage object, and a part of its log line."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Usage:
    """Token counts of one request, updated while it runs."""

    prompt: int
    cached: int = 0
    completion: int = 0

    def as_json(self) -> dict[str, Any]:
        """Returns OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
