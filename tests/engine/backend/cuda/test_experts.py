"""Mixtures of experts on the CUDA backend: which routers the kernels compute, and what runs the others."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen3MoeConfig
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.feed_forward.experts import rule_of
from sluice_engine.backend.cuda.modules import KernelExperts
from sluice_kernels.moe import RoutingRule
from tests.engine.backend.cuda.test_whole_engine import on_cuda
from tests.engine.families import FAMILIES, MIXTURES, logits_of, save

TEXT = [5, 6, 7, 80, 81]


class SigmoidRouter(MixtralTopKRouter):
    """Scores by the sigmoid, as some models' routers."""

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = hidden_states.reshape(-1, self.hidden_dim) @ self.weight.T
        weights, chosen = logits.float().sigmoid().topk(self.top_k, dim=-1)
        return logits, weights / weights.sum(-1, keepdim=True), chosen


class DoublingRouter(MixtralTopKRouter):
    """Weights that no rule of the kernels gives."""

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits, weights, chosen = super().forward(hidden_states)
        return logits, 2 * weights, chosen


def router(kind: Any, **changes: object) -> torch.nn.Module:
    config = Qwen3MoeConfig if kind is Qwen3MoeTopKRouter else MixtralConfig
    counts = {"num_experts": 6} if kind is Qwen3MoeTopKRouter else {"num_local_experts": 6}
    made: torch.nn.Module = kind(config(hidden_size=32, num_experts_per_tok=2, **counts, **changes))
    torch.nn.init.normal_(made.get_parameter("weight"), generator=torch.Generator().manual_seed(1))
    return made.requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (router(MixtralTopKRouter), RoutingRule(2)),
        (router(Qwen3MoeTopKRouter, norm_topk_prob=True), RoutingRule(2)),
        (router(Qwen3MoeTopKRouter, norm_topk_prob=False), RoutingRule(2, renormalise=False)),
        (router(SigmoidRouter), RoutingRule(2, "sigmoid")),
    ],
    ids=["mixtral", "qwen3, renormalised", "qwen3", "sigmoid"],
)
def test_the_rule_of_a_router_is_found_by_trying_it(
    module: torch.nn.Module, rule: RoutingRule, dtype: torch.dtype
) -> None:
    assert rule_of(module.to(dtype)) == rule


def test_a_router_of_another_kind_is_run_by_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="softmax or sigmoid scores"):
        rule_of(router(DoublingRouter))
    folder = save(FAMILIES["mixtral"](), tmp_path)
    monkeypatch.setattr("transformers.models.mixtral.modeling_mixtral.MixtralTopKRouter", DoublingRouter)
    with caplog.at_level(logging.INFO):
        engine = on_cuda(folder)
    assert not isinstance(engine.model.module.forward, FusedDecoder)
    assert "the kernels do not have a router whose weights are" in caplog.text
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        want = plain(torch.tensor([TEXT])).logits[0, -1]
    torch.testing.assert_close(logits_of(engine, [TEXT])[0], want, rtol=1e-4, atol=1e-4)


def test_a_mixture_inside_a_model_of_another_structure_is_run_by_the_kernels(tmp_path: Path) -> None:
    config = MIXTURES["olmoe"]()
    module = on_cuda(save(config, tmp_path)).model.module
    assert sum(isinstance(child, KernelExperts) for child in module.modules()) == config.num_hidden_layers
