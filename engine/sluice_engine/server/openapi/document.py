"""Builds the document: one operation per route, its request from the checked fields, its answers from the types."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from pydantic import TypeAdapter

from sluice import contract
from sluice.auth.access import takes_key_header
from sluice_engine.server.api import embeddings, rerank, tokens
from sluice_engine.server.api.anthropic import request_form as messages_form
from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.request_fields import Fields, object_form
from sluice_engine.server.api.responses import request_form as responses_form
from sluice_engine.server.openapi import answers, text_answers

SCHEMAS: Final = "#/components/schemas/"
EVENTS: Final[Object] = {  # one event of a stream: tools read this schema per event
    "schema": {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}, "required": ["data"]}
}  # fmt: skip
FAULTS: Final[dict[int, str]] = {
    400: "The request is invalid; the message says what, why and what to do.",
    401: "The API key is missing or wrong.",
    403: "The key does not permit this model.",
    404: "The path or the model is unknown.",
    405: "The path has other methods.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not plain JSON in UTF-8.",
    429: "The key has used its rate; Retry-After says when to try again.",
    500: "The engine failed; the message has the request id.",
    503: "Loading, full or draining; Retry-After says when to try again.",
}
# Of an operation that may need a key: the first entry stands for a server without keys.
SECURITY: Final[list[Object]] = [{}, {"key": []}]
OF_READING: Final = (400, 401, 403, 404, 405, 503)


@dataclass(frozen=True, slots=True)
class Post:
    """An operation with a body: its schema's name, fields and required fields, and the type of its answer."""

    paths: tuple[str, ...]
    summary: str
    name: str
    fields: Fields
    required: Sequence[str]
    answer: type[Any]
    streams: bool = False
    fault: type[Any] = answers.Error


@dataclass(frozen=True, slots=True)
class Get:
    """An operation without a body. `answer`: None for an empty one; `public`: no key is needed."""

    path: str
    summary: str
    answer: type[Any] | None
    public: bool = False


POSTS: Final = (
    Post(
        (contract.PATH_CHAT_COMPLETIONS,), "Answers a chat.", "ChatRequest",
        request_schema.CHAT, request_schema.CHAT_REQUIRED, answers.ChatCompletion, streams=True,
    ),
    Post(
        (contract.PATH_COMPLETIONS,), "Continues one or several prompts.", "CompletionRequest",
        request_schema.COMPLETION, request_schema.COMPLETION_REQUIRED, answers.Completion, streams=True,
    ),
    Post(
        (contract.PATH_RESPONSES,), "Answers as OpenAI's Responses API; nothing is stored.", "ResponsesRequest",
        responses_form.FIELDS, responses_form.REQUIRED, answers.Response, streams=True,
    ),
    Post(
        (contract.PATH_MESSAGES,), "Answers as Anthropic's Messages API.", "MessagesRequest",
        messages_form.FIELDS, messages_form.REQUIRED, answers.Message, streams=True, fault=answers.MessagesError,
    ),
    Post(
        (contract.PATH_COUNT_TOKENS,), "Counts the tokens of a prompt.", "CountTokensRequest",
        messages_form.FIELDS, messages_form.COUNTING_REQUIRED, answers.TokenCount, fault=answers.MessagesError,
    ),
    Post(
        (contract.PATH_EMBEDDINGS,), "Embeds texts.", "EmbeddingsRequest",
        embeddings.FIELDS, embeddings.REQUIRED, text_answers.Embeddings,
    ),
    Post(
        contract.PATHS_RERANK, "Orders documents by relevance to a query.", "RerankRequest",
        rerank.RERANK, rerank.RERANK_REQUIRED, text_answers.Ranking,
    ),
    Post(
        contract.PATHS_SCORE, "Scores pairs of texts.", "ScoreRequest",
        rerank.SCORE, rerank.SCORE_REQUIRED, text_answers.Scores,
    ),
    Post(
        (contract.PATH_TOKENIZE,), "Returns the token ids of a prompt, or of a chat.", "TokenizeRequest",
        tokens.TOKENIZE, (), text_answers.Tokens,
    ),
    Post(
        (contract.PATH_DETOKENIZE,), "Returns the text of token ids.", "DetokenizeRequest",
        tokens.DETOKENIZE, tokens.DETOKENIZE_REQUIRED, text_answers.Detokenized,
    ),
)  # fmt: skip
GETS: Final = (
    Get(contract.PATH_MODELS, "Lists the models that the key may use.", text_answers.Models),
    Get(f"{contract.PATH_MODELS}/{{model}}", "Describes the model.", text_answers.Model),
    Get(contract.PATH_HEALTH, "Succeeds while requests are accepted.", None, public=True),
    Get(contract.PATH_VERSION, "Returns the version of this server.", text_answers.Version, public=True),
    Get(contract.PATH_OPENAPI, "Returns this document.", dict, public=True),
)


def document() -> Object:
    """Returns the whole document."""
    types = {each.answer for each in (*POSTS, *GETS) if each.answer not in (None, dict)} | {
        post.fault for post in POSTS
    }
    ordered = sorted(types, key=lambda each: each.__name__)
    _, answered = TypeAdapter.json_schemas(
        [(each.__name__, "serialization", TypeAdapter(each)) for each in ordered], ref_template=SCHEMAS + "{model}"
    )
    requests = {post.name: object_form(post.fields, post.required) for post in POSTS}
    posts = {path: {"post": _post(post, path)} for post in POSTS for path in post.paths}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": version("sluice"),
            "description": "The data port of one engine. A field that is null counts as absent.",
        },
        "paths": posts | {get.path: {"get": _get(get)} for get in GETS},
        "components": {
            "schemas": requests | {name: _untitled(form) for name, form in answered["$defs"].items()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": SECURITY,
    }


def _post(post: Post, path: str) -> Object:
    content: Object = {"application/json": {"schema": _reference(post.answer)}}
    if post.streams:
        content["text/event-stream"] = EVENTS
    return {
        "operationId": _operation_id("post", path),
        "summary": post.summary,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": SCHEMAS + post.name}}},
        },
        "responses": {"200": {"description": "The answer.", "content": content}} | _faults(FAULTS, post.fault),
    } | _with_key_header(path)


def _with_key_header(path: str) -> Object:
    """The security of a path on which Anthropic's clients may send their header; that of all paths elsewhere."""
    return {"security": [*SECURITY, {"x-api-key": []}]} if takes_key_header(path) else {}


def _get(get: Get) -> Object:
    answered: Object = {"description": "The answer."}
    if get.answer is not None:
        answered["content"] = {"application/json": {"schema": _reference(get.answer)}}
    faults = _faults(OF_READING, answers.Error)
    if get.answer is None:
        faults["503"] = {"description": FAULTS[503]}
    operation: Object = {
        "operationId": _operation_id("get", get.path),
        "summary": get.summary,
        "responses": {"200": answered} | faults,
    }
    if "{model}" in get.path:
        operation["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    return operation | ({"security": []} if get.public else _with_key_header(get.path))


def _faults(statuses: "Sequence[int] | dict[int, str]", fault: type[Any]) -> Object:
    content = {"application/json": {"schema": _reference(fault)}}
    return {str(status): {"description": FAULTS[status], "content": content} for status in statuses}


def _reference(answer: type[Any]) -> Object:
    if answer is dict:
        return {"type": "object"}
    return {"$ref": SCHEMAS + answer.__name__}


def _operation_id(method: str, path: str) -> str:
    return "_".join([method, *(part.strip("{}") for part in path.split("/") if part)])


def _untitled(schema: Any) -> Any:
    """The schema without the titles that pydantic makes of field names."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _untitled(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)}
