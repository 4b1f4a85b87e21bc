"""The answers about texts, tokens, the model and the server, as types, from which the document's schemas are made."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class PromptUsage(TypedDict):
    """Token counts of a call that generates nothing."""

    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(TypedDict):
    """One vector per text, in order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


class RankedText(TypedDict):
    """The text of a document."""

    text: str


class RankedDocument(TypedDict):
    """One document; `index` is its place in the request."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class Ranking(TypedDict):
    """Documents, the most relevant one first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: PromptUsage


class Score(TypedDict):
    """The score of one pair."""

    index: int
    object: Literal["score"]
    score: float


class Scores(TypedDict):
    """One score per pair, in order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: PromptUsage


class Tokens(TypedDict):
    """The token ids of a prompt."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(TypedDict):
    """The text of token ids."""

    prompt: str


class Model(TypedDict):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int | None
    max_input_tokens: int | None  # this and what follows is read by Anthropic's clients
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class Models(TypedDict):
    """The models that the key may use."""

    object: Literal["list"]
    data: list[Model]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None


class Version(TypedDict):
    """The version of this server."""

    version: str
