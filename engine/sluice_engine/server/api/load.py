"""GET /load: the load of this replica in one small document, which gateways read several times a second."""

from typing import Final

import orjson
from aiohttp import web

from sluice import contract
from sluice_engine.server.context import Serving
from sluice_perfmodel.settings import PERFMODEL

_LEAST_STEPS: Final = PERFMODEL.limit.least_model_steps  # steps before the model is used anywhere


async def load(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /load. It also answers while the model loads, with `ready` false."""
    return serving.response(request, 200, orjson.dumps(document(serving)))


def document(serving: Serving) -> dict[str, object]:
    """The document, as `contract` describes it."""
    limits = serving.limits()
    report, ready = serving.engine.last_report, serving.engine.ready
    block_tokens = ready.block_size if ready is not None else 0.0
    model = None
    if report is not None and report.model_steps >= _LEAST_STEPS:
        model = dict(zip(contract.STEP_MODEL_TERMS, report.model, strict=True))
    return {
        "model": serving.served_name,
        "phase": serving.lifecycle.phase.value,
        "ready": serving.lifecycle.ready and serving.live() is None,
        "running": report.running if report is not None else 0,
        "waiting": report.waiting if report is not None else 0,
        "limit": limits.concurrency,
        "ttft_target_seconds": limits.limits.ttft_target,
        "prefill_tokens": serving.metrics.pending_prompt_tokens(),
        "output_tokens": serving.metrics.mean_output or 0.0,
        "kv_held_tokens": round(report.blocks_held * block_tokens) if report is not None else 0,
        "kv_total_tokens": round(ready.num_blocks * block_tokens) if ready is not None else 0,
        "step_model": model,
    }
