"""A model's need of memory: what any config and any memory must obey, and worked examples of real models."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sluice_perfmodel.model_memory import (
    CERTAIN_SHARE,
    KVLayers,
    ModelFacts,
    Plan,
    Remedies,
    facts_of,
    kv_layers,
    need,
    parameters_of,
    sentence,
    shortfall,
)

GIB = 1 << 30
REMEDIES = Remedies("Raise the limit to {size}", "set maxModelLength to {tokens}", "set dtype to bfloat16")
QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
layers = st.builds(
    KVLayers,
    windows=st.lists(st.none() | st.integers(1, 5000), min_size=1, max_size=60).map(tuple),
    heads=st.integers(1, 64),
    head_size=st.integers(1, 256),
)
facts = st.builds(
    ModelFacts,
    parameters=st.integers(0, 10**12),
    dtype=st.none(),
    positions=st.integers(16, 200_000),
    kv=st.none() | layers,
)
plans = st.builds(
    Plan,
    dtype=st.sampled_from(["float32", "bfloat16"]),
    max_model_length=st.none() | st.integers(16, 200_000),
    kv_size=st.none() | st.integers(1, 1 << 40),
    kv_share=st.floats(0.01, 1.0),
    reserved=st.integers(0, 1 << 34),
    accelerators=st.sampled_from([1, 2, 8]),
)


def test_the_need_of_qwen3_8b_is_its_published_size_and_144_kib_per_token() -> None:
    found = need(facts_of(QWEN3_8B, 8_190_735_360), Plan("bfloat16", max_model_length=8192, kv_share=1.0))
    assert found.weights == 16_381_470_720
    assert found.kv == 8192 * 144 * 1024


def test_the_sentence_has_what_is_needed_what_is_there_and_two_remedies() -> None:
    plan = Plan("bfloat16", kv_share=1.0)
    short = shortfall(facts_of(QWEN3_8B, 8_190_735_360), plan, 18 * GIB)
    assert short is not None
    assert sentence(short, "The memory limit", REMEDIES) == (
        "The model needs at least 20.88 GiB: 15.26 GiB of weights in bfloat16 and 5.62 GiB for the KV cache of one request of "
        "40960 tokens. The memory limit is 18 GiB. Raise the limit to 20.9 GiB, or set maxModelLength to 19968."
    )
    short = shortfall(facts_of(QWEN3_8B, 8_190_735_360), replace(plan, dtype="float32"), 18 * GIB)
    assert short is not None
    assert sentence(short, "It", REMEDIES).endswith(
        "Raise the limit to 41.8 GiB, or set dtype to bfloat16, which halves the weights, or choose a smaller model."
    )


@given(facts, plans, st.integers(0, 1 << 42))
def test_what_fits_stays_fitting_with_more_memory_and_the_remedies_help(
    model: ModelFacts, plan: Plan, available: int
) -> None:
    short = shortfall(model, plan, available)
    needed = need(model, plan)
    assert (short is None) == (CERTAIN_SHARE * needed.total <= available)
    assert shortfall(model, plan, max(needed.total, available + (short is None))) is None
    if short is not None and short.fitting_length:
        assert shortfall(model, replace(plan, max_model_length=short.fitting_length), available) is None
        assert short.fitting_length <= min(needed.tokens, model.positions or needed.tokens)


@given(facts, plans)
def test_the_need_grows_with_the_length_and_shrinks_with_the_accelerators(model: ModelFacts, plan: Plan) -> None:
    longer = replace(plan, max_model_length=2 * (plan.max_model_length or model.positions or 1))
    assert need(model, longer).kv >= need(model, plan).kv
    one, eight = need(model, replace(plan, accelerators=1)), need(model, replace(plan, accelerators=8))
    assert one.weights <= 8 * eight.weights <= one.weights + 8
    assert one.kv <= 8 * eight.kv <= one.kv + 8


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*QWEN3_8B, "layer_types", "sliding_window"], json_values)))
def test_any_config_is_read(config: dict[str, Any]) -> None:
    need(facts_of(config, 10), Plan("float32"))


def test_absurd_numbers_of_a_config_count_as_not_given() -> None:
    assert kv_layers({**QWEN3_8B, "num_hidden_layers": 10**9}) is None
    assert kv_layers({**QWEN3_8B, "num_attention_heads": 10**4000}) is None
    assert facts_of({**QWEN3_8B, "max_position_embeddings": 10**4000}, 1).positions is None


def test_an_embedding_model_caches_nothing() -> None:
    assert kv_layers({**QWEN3_8B, "architectures": ["BertModel"]}) is None
    assert facts_of(QWEN3_8B, 10, generates=False).kv is None


def test_a_window_bounds_the_cache_of_its_layers() -> None:
    config = {**QWEN3_8B, "num_hidden_layers": 2, "sliding_window": 1024}
    kinds = {"layer_types": ["sliding_attention", "full_attention"]}
    assert kv_layers({**config, **kinds}) == KVLayers((1024, None), 8, 128)
    assert kv_layers({**config, "use_sliding_window": False}) == KVLayers((None, None), 8, 128)
    assert KVLayers((1024, None), 8, 128).request_bytes(4096, Plan("bfloat16")) == 5120 * 2 * 8 * 128 * 2


def test_parameters_are_counted_from_headers_without_a_copy_of_tied_embeddings() -> None:
    header: dict[str, Any] = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [100, 8], "data_offsets": [0, 1600]},
        "lm_head.weight": {"dtype": "BF16", "shape": [100, 8], "data_offsets": [1600, 3200]},
    }
    assert parameters_of([(header, 3200)], tied=False) == 1600
    assert parameters_of([(header, 3200)], tied=True) == 800
    assert parameters_of([(header, 3200), (header, 6400)], tied=False) == 4800
    assert parameters_of([({}, 100)], tied=False) == 0
