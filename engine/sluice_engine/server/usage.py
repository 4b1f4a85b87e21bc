"""Token counts of one request: OpenAI's usage object, and a part of its log line."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Usage:
    """Token counts of one request, updated while it runs."""

    prompt: int
    cached: int = 0
    completion: int = 0
    reasoning: int | None = None  # of the completion's tokens; None for a model that does not reason apart

    def as_json(self) -> dict[str, Any]:
        """Returns OpenAI's usage object."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        if self.reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.reasoning}
        return usage
