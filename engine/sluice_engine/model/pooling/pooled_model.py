"""A model that gives one vector per text: an embedding, or a cross-encoder's score.

The encoder runs over the flat batch; pooling and the head work on one vector per text. A cross-encoder's head is
transformers' own: a substitute encoder passes it the pooled vectors as texts of one token each. The pooling that the
head expects is determined by a comparison with the model's own result for one text, not by the model's name.
"""

import inspect
import logging
from dataclasses import dataclass
from typing import get_args

import torch
import transformers
from torch.nn.functional import normalize
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from sluice_engine.errors import ModelInvalid
from sluice_engine.model.fusion import fuse
from sluice_engine.model.introspection import check, observe
from sluice_engine.model.pooling.packed_batch import PackedBatch, pack_batch, pooled
from sluice_engine.model.pooling.task import Pooling, Task, pick_pooling, read_sentence_files, shows_probability
from sluice_engine.model.pretrained import Checkpoint

_log = logging.getLogger(__name__)
_PROBE_TOKENS = 6
_CLOSE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}  # of a score, relative to the scores' spread


class _EncoderStub(torch.nn.Module):
    """Replaces a cross-encoder's encoder and returns the given vectors [N, 1, D]."""

    def __init__(self, pooler: torch.nn.Module | None) -> None:
        super().__init__()
        self.pooler = pooler

    def forward(
        self, *_: object, inputs_embeds: torch.Tensor, **__: object
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        """The encoder's output for texts of one token."""
        summary = None if self.pooler is None else self.pooler(inputs_embeds)
        return BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=inputs_embeds, pooler_output=summary)


@dataclass(frozen=True, slots=True)
class PooledModel:
    """An embedding model (`head` None) or a scoring model. `finish`: embeddings are normalised to unit length, scores
    become probabilities.
    """

    encoder: torch.nn.Module
    head: torch.nn.Module | None
    pooling: Pooling
    finish: bool
    position_offset: int  # position of a text's first token
    takes_types: bool
    size: int  # D

    @torch.inference_mode()
    def run(self, batch: PackedBatch) -> torch.Tensor:
        """The vectors of the batch's texts, [N, D] float32; D is 1 for scores."""
        vectors = pooled(self.hidden(batch), batch, self.pooling)
        if self.head is None:
            return normalize(vectors, dim=-1) if self.finish else vectors
        scores = _scores(self.head, vectors.to(next(self.head.parameters()).dtype))
        return torch.sigmoid(scores) if self.finish else scores

    def hidden(self, batch: PackedBatch) -> torch.Tensor:
        """The encoder's last hidden states, [1, T, D]. Raises ValueError for token types that the model lacks."""
        return _hidden(self.encoder, batch, self.position_offset, takes_types=self.takes_types)


def pooled_model(
    module: transformers.PreTrainedModel, checkpoint: Checkpoint, task: Task, device: torch.device, pooling: str
) -> PooledModel:
    """The module as read for its task, with its weights on the device. Raises ModelInvalid for what cannot be served."""
    folder, config = checkpoint.folder, checkpoint.config
    module = module.eval().requires_grad_(False)
    files = read_sentence_files(folder) if task == "embed" else None
    structure = observe(module, device, generates=False)
    check(module, config, structure, generates=False)
    causal = all(call.causal for call in structure.calls)
    offset = _position_offset(module)
    if task == "score":
        encoder = module.base_model
        parts = _Parts(encoder, module, _head_pooling(module, encoder, offset, device))
        finish = shows_probability(config)
    else:
        parts = _Parts(module, None, pick_pooling(pooling, files, causal=causal))
        finish = files is None or files.normalize
    fuse(parts.encoder, structure, packs=device.type == "cpu")
    _log.info("%s gives one %s per text, pooled by %s", type(module).__name__, task, parts.pooling)
    return PooledModel(
        encoder=parts.encoder,
        head=parts.head,
        pooling=parts.pooling,
        finish=finish,
        position_offset=offset,
        takes_types="token_type_ids" in inspect.signature(parts.encoder.forward).parameters,
        size=1 if task == "score" else config.get_text_config().hidden_size,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    encoder: torch.nn.Module
    head: torch.nn.Module | None
    pooling: Pooling


def _position_offset(module: torch.nn.Module) -> int:
    """The position id of a text's first token. RoBERTa-like models start after the padding position of their embedding
    table.
    """
    for name, child in module.named_modules():
        if name.endswith("position_embeddings") and isinstance(child, torch.nn.Embedding):
            return 0 if child.padding_idx is None else child.padding_idx + 1
    return 0


def usable_positions(module: torch.nn.Module, positions: int) -> int:
    """The number of positions, out of `positions`, that a text's tokens can have."""
    return positions - _position_offset(module)


def _hidden(encoder: torch.nn.Module, batch: PackedBatch, offset: int, *, takes_types: bool) -> torch.Tensor:
    types: dict[str, torch.Tensor] = {}
    if batch.token_type_ids is not None:
        if not takes_types:
            raise ValueError("the model has no token types, and its tokenizer gives them")
        types["token_type_ids"] = batch.token_type_ids
    output = encoder(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids + offset if offset else batch.position_ids,
        use_cache=False,
        sluice_packed=batch,
        **types,
    )
    hidden: torch.Tensor = output.last_hidden_state
    return hidden


def _scores(head: torch.nn.Module, vectors: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = head(inputs_embeds=vectors.unsqueeze(1)).logits
    return logits.float()


@torch.inference_mode()
def _head_pooling(
    module: transformers.PreTrainedModel, encoder: torch.nn.Module, offset: int, device: torch.device
) -> Pooling:
    """Replaces the encoder by the substitute and returns the pooling that reproduces the model's own scores.

    Raises ModelInvalid when no pooling does.
    """
    pad = module.config.get_text_config().pad_token_id
    text = [token for token in range(_PROBE_TOKENS + 1) if token != pad][:_PROBE_TOKENS]
    batch = pack_batch([text], [()], device)
    positions = batch.position_ids + offset
    want = module(
        input_ids=batch.input_ids, position_ids=positions, use_cache=False, sluice_packed=batch
    ).logits.float()
    hidden = _hidden(encoder, batch, offset, takes_types=False)
    setattr(module, module.base_model_prefix, _EncoderStub(getattr(encoder, "pooler", None)))
    if pad is None:  # a last-token head rejects batches without a pad token; the substitute never pads
        module.config.get_text_config().pad_token_id = 0
    found: dict[Pooling, torch.Tensor] = {}
    for pooling in get_args(Pooling):
        found[pooling] = _scores(module, pooled(hidden, batch, pooling).to(hidden.dtype))
    best = min(found, key=lambda pooling: float((found[pooling] - want).abs().max()))
    spread = max(float((score - want).abs().max()) for score in found.values())
    if found[best].shape != want.shape or float((found[best] - want).abs().max()) > _CLOSE[hidden.dtype] * spread:
        raise ModelInvalid(
            f"{type(module).__name__} pools its texts in another way than {', '.join(get_args(Pooling))}; this engine "
            "computes no other."
        )
    return best
