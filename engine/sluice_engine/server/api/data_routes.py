"""Routes of the data port: the OpenAI API."""

import orjson
from aiohttp import web

from sluice import contract
from sluice.auth.caller import caller_of
from sluice.httpapi.models_document import Entry, model_entry, models_document
from sluice_engine.server.api import embeddings, rerank, tokens
from sluice_engine.server.api.anthropic import handler as anthropic
from sluice_engine.server.api.generation import completions
from sluice_engine.server.api.responses import handler as responses
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import NotFound
from sluice_engine.server.transport.router import Routes


async def list_models(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /v1/models: the models that the caller may use."""
    serving.check_loaded()
    models = [_model(serving)] if caller_of(request).may_use(serving.served_name) else []
    return serving.response(request, 200, orjson.dumps(models_document(models)))


async def get_model(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /v1/models/{id}. Raises Forbidden for a model that the caller may not use."""
    serving.check_loaded()
    if request.rel_url.path != f"{contract.PATH_MODELS}/{serving.served_name}":
        raise NotFound(
            f"The model does not exist; this server serves {serving.served_name!r}.",
            param="model",
            code="model_not_found",
        )
    caller_of(request).check_model(serving.served_name)
    return serving.response(request, 200, orjson.dumps(_model(serving)))


def _model(serving: Serving) -> Entry:
    length = serving.engine.ready.max_model_length if serving.engine.ready is not None else None
    return model_entry(serving.served_name, serving.created, length)


def routes() -> Routes:
    """Returns the routes of the data port."""
    return {
        contract.PATH_CHAT_COMPLETIONS: {"POST": completions.chat},
        contract.PATH_COMPLETIONS: {"POST": completions.completions},
        contract.PATH_RESPONSES: {"POST": responses.responses},
        contract.PATH_MESSAGES: {"POST": anthropic.messages},
        contract.PATH_COUNT_TOKENS: {"POST": anthropic.count_tokens},
        contract.PATH_EMBEDDINGS: {"POST": embeddings.embeddings},
        **{key: {"POST": rerank.rerank} for key in contract.PATHS_RERANK},
        **{key: {"POST": rerank.score} for key in contract.PATHS_SCORE},
        contract.PATH_TOKENIZE: {"POST": tokens.tokenize},
        contract.PATH_DETOKENIZE: {"POST": tokens.detokenize},
        contract.PATH_MODELS: {"GET": list_models},
        f"{contract.PATH_MODELS}/*": {"GET": get_model},  # a served name may contain a slash ("Qwen/Qwen3-8B")
    }
