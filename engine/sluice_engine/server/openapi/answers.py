"""The answers of generation, and errors, as types, from which the document's schemas are made."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

Finish = Literal["stop", "length", "tool_calls"]


class ErrorDetail(TypedDict):
    """What, why and what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(TypedDict):
    """OpenAI's error."""

    error: ErrorDetail


class MessagesErrorDetail(TypedDict):
    """What, why and what to do."""

    type: str
    message: str


class MessagesError(TypedDict):
    """Anthropic's error."""

    type: Literal["error"]
    error: MessagesErrorDetail


class CachedTokens(TypedDict):
    """Prompt tokens whose keys and values were in the prefix cache."""

    cached_tokens: int


class ResponseInputTokens(CachedTokens):
    """Cached tokens of a response's input. What is written to the cache is not billed, so that its count is 0."""

    cache_write_tokens: int


class ReasoningTokens(TypedDict):
    """Output tokens of the reasoning."""

    reasoning_tokens: int


class Usage(TypedDict):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: NotRequired[ReasoningTokens]


class TokenLogprob(TypedDict):
    """One token and the logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class SampledLogprob(TokenLogprob):
    """A sampled token beside the most likely ones."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(TypedDict):
    """One entry per output token."""

    content: list[SampledLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """Lists with one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CalledFunction(TypedDict):
    """`arguments` is JSON as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """A call that the client runs."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(TypedDict):
    """An answer. `content` is null beside calls without text."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]
    reasoning_content: NotRequired[str]


class ChatChoice(TypedDict):
    """One sample of a chat."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish
    stop_reason: str | None


class ChatCompletion(TypedDict):
    """The answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class PromptTokenLogprob(TypedDict):
    """One token at a place of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


class CompletionChoice(TypedDict):
    """One sample of a completion. `prompt_logprobs` has an object by token id for each token but the first."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish
    stop_reason: str | None
    prompt_logprobs: NotRequired[list[dict[str, PromptTokenLogprob] | None]]


class Completion(TypedDict):
    """The answer to a completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class OutputText(TypedDict):
    """Text of an answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class OutputMessage(TypedDict):
    """An item with the answer's text."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Literal["completed", "incomplete"]
    content: list[OutputText]


class ReasoningText(TypedDict):
    """Text of a model's reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(TypedDict):
    """An item with the model's reasoning."""

    id: str
    type: Literal["reasoning"]
    summary: list[Any]
    status: Literal["completed", "incomplete"]
    content: list[ReasoningText]


class FunctionCall(TypedDict):
    """An item with a call that the client runs."""

    id: str
    type: Literal["function_call"]
    status: Literal["completed", "incomplete"]
    call_id: str
    name: str
    arguments: str


class ResponseUsage(TypedDict):
    """Token counts as the Responses API names them."""

    input_tokens: int
    input_tokens_details: ResponseInputTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class IncompleteDetails(TypedDict):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"]


class Response(TypedDict):
    """The answer of the Responses API. Fields of the request that it repeats have the request's form."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    error: None
    previous_response_id: None
    store: Literal[False]
    background: Literal[False]
    status: Literal["completed", "incomplete"]
    incomplete_details: IncompleteDetails | None
    output: list[OutputMessage | ReasoningItem | FunctionCall]
    usage: ResponseUsage
    instructions: str | None
    max_output_tokens: int | None
    parallel_tool_calls: bool
    temperature: float
    top_p: float
    tools: list[Any]
    tool_choice: Any
    text: dict[str, Any]
    reasoning: dict[str, Any] | None
    truncation: str
    metadata: dict[str, Any]
    user: str | None


class TextBlock(TypedDict):
    """Text of an answer."""

    type: Literal["text"]
    text: str


class ThinkingBlock(TypedDict):
    """A model's reasoning."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(TypedDict):
    """A call that the client runs."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: Any


class MessageUsage(TypedDict):
    """Token counts as Anthropic names them."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int


class Message(TypedDict):
    """The answer of the Messages API."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use", "stop_sequence"]
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(TypedDict):
    """The number of tokens of a prompt."""

    input_tokens: int
