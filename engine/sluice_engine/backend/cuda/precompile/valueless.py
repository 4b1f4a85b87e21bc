"""A runner of decode graphs on tensors without values: it launches, or records, the kernels that the real one launches."""

from collections.abc import Callable
from types import SimpleNamespace

import torch

from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.device_queue import Wait, Work
from sluice_engine.backend.cuda.graphs import Replay
from sluice_engine.backend.cuda.precompile.sizes import META, ModelSizes
from sluice_engine.backend.cuda.runner import GraphRunner, PendingDecode
from sluice_engine.backend.runner import StepResult
from sluice_engine.backend.step_inputs import StepInputs
from sluice_engine.control.step_deadline import Deadline
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.layer_groups import LayerGroups
from sluice_engine.model.loaded import LoadedModel


class SamplingQueue:
    """Executes the sampling alone: copies to the host have no values, and replays launch nothing anew."""

    def put(self, work: Work) -> None:
        """Execute it if it is a step's sampling."""
        if work.func.__name__ == "sample":  # type: ignore[attr-defined]
            work()

    def mark(self) -> Wait:
        """Nothing is in flight."""
        return lambda: None

    def stamp(self) -> None:
        """No time passes."""


def launched_once(work: Work) -> Replay:
    """A capture that runs the work once; its replays launch no kernel anew."""
    work()
    return lambda: None


class ValuelessRunner(GraphRunner):
    """`draw` gives the tokens in place of the sampler, because logits without values cannot be sampled from."""

    def __init__(
        self, model: LoadedModel, decoder: FusedDecoder, config: CacheConfig, draw: Callable[[], int] = lambda: 0
    ) -> None:
        super().__init__(model, decoder, config, SamplingQueue(), launched_once)
        self._draw = draw

    def _forward(self, inputs: StepInputs, result: StepResult, deadline: Deadline | None = None) -> dict[str, int]:
        batch = inputs.batch
        with torch.inference_mode():
            self.decode_step.decoder(batch.input_ids, batch.position_ids, batch.logits_index, batch, self.cache)
        return {name: self._draw() for name in inputs.logits_rows.request_ids}

    def _decode(self, pending: PendingDecode) -> StepResult:
        self._complete(pending)
        return StepResult([self._draw() for _ in pending.step.plan.rows])


def valueless_model(sizes: ModelSizes, groups: LayerGroups, length: int) -> tuple[LoadedModel, FusedDecoder]:
    """A loaded model of these sizes without values, and its decoder. `length`: of its requests, in tokens."""
    decoder = sizes.decoder()
    model = LoadedModel(
        module=SimpleNamespace(forward=decoder),
        device=META,
        dtype=sizes.dtype,
        kv_shape=KVShape(sizes.layers, sizes.kv_heads, sizes.head_dim, sizes.dtype, groups),
        max_model_length=length,
        vocab_size=sizes.vocab,
        eos_ids=frozenset(),
    )
    return model, decoder
