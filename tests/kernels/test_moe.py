"""The public functions of `moe`: transformers' routers and experts are the oracle, and launches follow from shapes alone."""

import pytest
import torch
from transformers import MixtralConfig, Qwen2MoeConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock

from sluice_kernels import launch
from sluice_kernels.moe import ExpertWeights, Routing, RoutingRule, Shared, moe, route, warm
from sluice_kernels.moe.configs import GROUPED_ROWS
from sluice_kernels.moe.reference import tile_count

META = torch.device("meta")


def block(name: str) -> torch.nn.Module:
    sizes = {"hidden_size": 24, "num_experts_per_tok": 3, "num_hidden_layers": 1}
    if name == "mixtral":
        made = MixtralSparseMoeBlock(MixtralConfig(**sizes, intermediate_size=20, num_local_experts=5))
    else:
        config = Qwen2MoeConfig(
            **sizes, moe_intermediate_size=20, shared_expert_intermediate_size=16, num_experts=5, norm_topk_prob=False
        )
        made = Qwen2MoeSparseMoeBlock(config)
    generator = torch.Generator().manual_seed(5)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=generator)
    return made.eval().requires_grad_(False)


@pytest.mark.parametrize("rows", [0, 1, 30])
@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe"])
def test_a_block_of_transformers_is_the_oracle(name: str, rows: int) -> None:
    module = block(name)
    x = torch.randn(rows, 24, generator=torch.Generator().manual_seed(6))
    routing = route(x @ module.gate.weight.T, RoutingRule(3, renormalise=name == "mixtral"))
    shared = None
    if name == "qwen2-moe":
        shared = Shared(module.shared_expert(x), module.shared_expert_gate(x))
    weights = ExpertWeights(module.experts.gate_up_proj, module.experts.down_proj)
    got = moe(x, weights, routing, shared)
    torch.testing.assert_close(got, module(x.unsqueeze(0))[0], rtol=1e-5, atol=1e-6)


def recorded(rows: int, dtype: torch.dtype = torch.bfloat16, architecture: int = 90) -> list[launch.Launch]:
    x = torch.empty(rows, 64, dtype=dtype, device=META)
    weights = ExpertWeights(
        torch.empty(8, 64, 64, dtype=dtype, device=META), torch.empty(8, 64, 32, dtype=dtype, device=META)
    )
    routing = Routing(torch.empty(rows, 2, dtype=torch.int32, device=META), torch.empty(rows, 2, device=META))
    with launch.recording(architecture) as launches:
        warm(x[:1], weights, 2)
        warmed = {one.key for one in launches}
        launches.clear()
        moe(x, weights, routing)
    assert {one.key for one in launches} <= warmed
    return launches


def test_the_tiles_grow_with_the_rows_of_an_expert_and_all_were_warmed() -> None:
    tiles = {}
    for rows in (1, 8, 32, 33, 255, 256, 257, 300, 512, 4000):
        launches = recorded(rows, torch.float16)
        tiles[rows] = next(one.constants["tile"] for one in launches if one.kernel.__name__ == "_expert_down")
    assert list(tiles.values()) == [16, 16, 16, 64, 64, 64, 128, 128, 128, 128]


@pytest.mark.parametrize(("architecture", "dtype", "grouped"), [
    (90, torch.bfloat16, True), (100, torch.bfloat16, True), (80, torch.bfloat16, False), (90, torch.float16, False),
])  # fmt: skip
def test_a_large_step_is_torchs_grouped_product_where_it_needs_no_host(
    architecture: int, dtype: torch.dtype, grouped: bool
) -> None:
    rows = GROUPED_ROWS * 8 // 2
    names = {one.kernel.__name__ for one in recorded(rows, dtype, architecture)}
    assert ("_expert_down" in names) != grouped
    assert "_expert_down" in {one.kernel.__name__ for one in recorded(rows - 1, dtype, architecture)}


def test_no_distribution_needs_more_tiles_than_are_counted() -> None:
    for counts in ([0, 0, 9], [1, 1, 1], [4, 4, 1], [17, 0, 0], [5, 5, 5], [1, 0, 0]):
        for tile in (1, 4, 16):
            needed = sum(-(-count // tile) for count in counts)
            assert needed <= tile_count(sum(counts), len(counts), tile)
