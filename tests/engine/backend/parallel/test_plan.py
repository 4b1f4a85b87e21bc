"""The parts of all ranks are the whole weight, and the products of the parts are those of the whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from sluice.models.support import CHECKED_TYPES
from sluice.models.tensor_parallel import UNSHARED_TYPES, ShardedSizes, not_divided, sizes_of
from sluice_engine.backend.parallel.collectives import embedded, joined_logits, part_of
from sluice_engine.backend.parallel.plan import SPLITS, Share, Split, cuts_of, split_of, unplanned
from sluice_engine.backend.parallel.shard import check_planned, share_of
from sluice_engine.errors import InvalidOption, UnsupportedArchitecture
from tests.engine.backend.parallel.thread_ranks import on_ranks

HEAD_DIM, HIDDEN, COUNT = 4, 6, 3
MERGED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
SINGLE = sorted(name for name in SPLITS if name not in MERGED and not name.startswith("experts."))


@st.composite
def shared(draw: st.DrawFn) -> tuple[ShardedSizes, int]:
    """Sizes and a number of ranks that can share them."""
    ranks = draw(st.sampled_from([1, 2, 3, 4, 8]))
    kv_heads = draw(st.sampled_from([each for each in (1, 2, 3, 4, 6, 8) if each % ranks == 0 or ranks % each == 0]))
    group = draw(st.sampled_from([each for each in range(1, 9) if kv_heads * each % ranks == 0]))
    return ShardedSizes(kv_heads * group, kv_heads, ranks * draw(st.integers(1, 5))), ranks


def shape_of(module: str, sizes: ShardedSizes, vocabulary: int) -> tuple[int, ...]:
    return {
        Split.QUERY_HEADS: (sizes.heads * HEAD_DIM, HIDDEN),
        Split.KV_HEADS: (sizes.kv_heads * HEAD_DIM, HIDDEN),
        Split.ATTENDED_HEADS: (HIDDEN, sizes.heads * HEAD_DIM),
        Split.INNER: (sizes.inner, HIDDEN),
        Split.ACTIVATED: (HIDDEN, sizes.inner),
        Split.VOCABULARY: (vocabulary, HIDDEN),
    }[SPLITS[module]]


def parts(name: str, whole: torch.Tensor, sizes: ShardedSizes, ranks: int) -> list[torch.Tensor]:
    return [part_of(whole, cuts_of(name, tuple(whole.shape), Share(rank, ranks, sizes))) for rank in range(ranks)]


@given(shared(), st.sampled_from(SINGLE), st.integers(1, 40))
def test_the_parts_of_all_ranks_are_the_whole_weight(
    case: tuple[ShardedSizes, int], module: str, vocabulary: int
) -> None:
    sizes, ranks = case
    whole = torch.randn(shape_of(module, sizes, vocabulary))
    found = parts(f"model.layers.0.{module}.weight", whole, sizes, ranks)
    assert len({part.shape for part in found}) == 1
    split = SPLITS[module]
    if split is Split.KV_HEADS and sizes.kv_heads < ranks:
        found = found[:: ranks // sizes.kv_heads]
    joined = torch.cat(found, dim=1 if split.summed else 0)
    assert torch.equal(joined[: len(whole)], whole)
    assert not joined[len(whole) :].any()


@given(shared(), st.sampled_from(sorted(MERGED)))
def test_a_merged_weight_is_split_part_by_part(case: tuple[ShardedSizes, int], module: str) -> None:
    sizes, ranks = case
    wholes = [torch.randn(shape_of(part, sizes, 1)) for part in MERGED[module]]
    found = parts(f"model.layers.0.{module}.weight", torch.cat(wholes), sizes, ranks)
    single = [parts(f"{part}.weight", whole, sizes, ranks) for part, whole in zip(MERGED[module], wholes, strict=True)]
    for rank, part in enumerate(found):
        assert torch.equal(part, torch.cat([each[rank] for each in single]))


@given(shared(), st.sampled_from(["gate_up_proj", "down_proj"]))
def test_each_expert_is_split_as_a_feed_forward_layer(case: tuple[ShardedSizes, int], module: str) -> None:
    sizes, ranks = case
    shape = (HIDDEN, sizes.inner) if module == "down_proj" else (2 * sizes.inner, HIDDEN)
    experts = torch.randn(COUNT, *shape)
    found = parts(f"model.layers.0.mlp.experts.{module}", experts, sizes, ranks)
    for index, expert in enumerate(experts):
        single = parts(f"model.layers.0.mlp.{module}.weight", expert, sizes, ranks)
        assert all(torch.equal(part[index], want) for part, want in zip(found, single, strict=True))


@given(shared(), st.sampled_from([name for name in SINGLE if SPLITS[name].summed]))
def test_the_products_of_parts_sum_to_the_product_of_the_whole(case: tuple[ShardedSizes, int], module: str) -> None:
    sizes, ranks = case
    weight, bias = (
        torch.randn(shape_of(module, sizes, 1), dtype=torch.float64),
        torch.randn(HIDDEN, dtype=torch.float64),
    )
    rows = torch.randn(3, weight.shape[1], dtype=torch.float64)
    weights = parts(f"{module}.weight", weight, sizes, ranks)
    biases = parts(f"{module}.bias", bias, sizes, ranks)
    inputs = rows.split(weight.shape[1] // ranks, dim=1)
    got = sum(each @ part.T + own for each, part, own in zip(inputs, weights, biases, strict=True))
    torch.testing.assert_close(got, rows @ weight.T + bias)


@given(shared())
def test_each_rank_has_the_key_value_head_that_its_query_heads_read(case: tuple[ShardedSizes, int]) -> None:
    sizes, ranks = case
    group = sizes.heads // sizes.kv_heads
    for rank in range(ranks):
        share = Share(rank, ranks, sizes)
        (queries,), (keys,) = (
            cuts_of(f"{module}.weight", (units * HEAD_DIM, HIDDEN), share)
            for module, units in (("q_proj", sizes.heads), ("k_proj", sizes.kv_heads))
        )
        first, local = queries.start // HEAD_DIM, (keys.stop - keys.start) // HEAD_DIM
        for head in range(share.heads):
            read = keys.start // HEAD_DIM + head // (share.heads // local)
            assert read == (first + head) // group


def test_tokens_and_logits_of_an_odd_vocabulary_are_joined() -> None:
    weight, tokens = torch.randn(7, HIDDEN), torch.tensor([[0, 6, 3], [2, 5, 6]])
    found = parts("lm_head.weight", weight, ShardedSizes(1, 1, 1), 3)
    rows = on_ranks(3, lambda group: embedded(tokens, 3, lambda own: found[group.rank][own], group))
    assert all(torch.equal(each, weight[tokens]) for each in rows)
    states = torch.randn(4, HIDDEN)
    logits = on_ranks(3, lambda group: joined_logits(states @ found[group.rank].T, 7, group))
    assert all(torch.equal(each, logits[0]) for each in logits)
    torch.testing.assert_close(logits[0], states @ weight.T)


def test_the_ranks_agree_on_the_least_number() -> None:
    assert on_ranks(3, lambda group: group.least(10 - group.rank)) == [8, 8, 8]


@pytest.mark.parametrize(
    ("sizes", "ranks", "fault"),
    [
        (ShardedSizes(9, 3, 1536), 2, "Its 9 attention heads cannot be divided by 2; .* one of 1, 3\\."),
        (ShardedSizes(12, 3, 96), 2, "Its 3 key-value heads cannot be divided by 2; .* one of 1, 3, 6, 12"),
        (ShardedSizes(8, 8, 99), 2, "feed-forward layers, 99, cannot be divided by 2; .* must be 1"),
        (ShardedSizes(8, 8, 96, (48, 41)), 2, "The width of its experts, 41, cannot be divided by 2; .* must be 1"),
        (ShardedSizes(8, 2, 96), 8, None),
        (ShardedSizes(64, 8, 28672), 8, None),
    ],
)
def test_numbers_that_do_not_divide_the_model_are_named(sizes: ShardedSizes, ranks: int, fault: str | None) -> None:
    config = {
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "intermediate_size": sizes.inner,
    } | dict(zip(("moe_intermediate_size", "shared_expert_intermediate_size"), sizes.experts, strict=False))
    assert sizes_of(config) == sizes
    if fault is None:
        assert not_divided(sizes, ranks) is None
        assert share_of(config, 1, ranks) == Share(1, ranks, sizes)
    else:
        with pytest.raises(InvalidOption, match=fault):
            share_of(config, 0, ranks)


def test_a_config_without_sizes_is_refused() -> None:
    with pytest.raises(UnsupportedArchitecture, match="needs num_attention_heads and intermediate_size"):
        share_of({"num_attention_heads": 8, "intermediate_size": True}, 0, 2)


def test_norms_are_whole_and_unknown_weights_are_named() -> None:
    assert split_of("model.layers.0.input_layernorm.weight") is None
    assert cuts_of("model.norm.weight", (HIDDEN,), Share(1, 2, ShardedSizes(2, 2, 2))) == ()
    names = ["self_attn.q_proj.weight", "mlp.experts.down_proj", "mlp.experts.bias", "mlp.fc1.weight"]
    assert unplanned([f"model.layers.0.{name}" for name in names]) == ["experts.bias", "fc1"]


def without_memory(kind: str) -> torch.nn.Module:
    """A model of this type with two layers of the usual sizes, on the meta device."""
    config = AutoConfig.for_model(kind)
    if kind == "gpt_neo":
        config = AutoConfig.for_model(kind, num_layers=2, attention_types=[[["global"], 2]])
    config.num_hidden_layers = 2
    with torch.device("meta"):
        module: torch.nn.Module = AutoModelForCausalLM.from_config(config)
    return module


@pytest.mark.parametrize("kind", sorted(UNSHARED_TYPES))
def test_the_types_that_the_operator_refuses_have_no_plan(kind: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match="there is no plan for its"):
        check_planned(without_memory(kind), Share(0, 2, ShardedSizes(8, 8, 8)))


@pytest.mark.parametrize("kind", CHECKED_TYPES)
def test_the_types_that_are_checked_can_be_shared(kind: str) -> None:
    assert kind not in UNSHARED_TYPES
    module = without_memory(kind)
    check_planned(module, share_of(module.config.to_dict(), 0, 2))
