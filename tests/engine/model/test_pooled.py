"""Models that embed or score give the results of plain transformers on a padded batch, without computing the padding."""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForSequenceClassification, BertModel, DebertaV2Config, DebertaV2Model

from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.errors import InvalidOption, ModelInvalid
from sluice_engine.model import attention
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.model.loader import load_model
from sluice_engine.model.pooling.packed_batch import MAX_PADDING, by_length, pack_batch
from sluice_engine.model.pooling.pooled_model import PooledModel
from tests.engine.oracle import options
from tests.engine.texts import CONFIGS, ENCODER, Reference, save_texts_model, texts, write_sentence_files

CPU = torch.device("cpu")
LENGTHS = [1, 5, 5, 40, 41, 77, 100, 13, 250]


def load(folder: Path, **changes: object) -> LoadedModel:
    return load_model(options(folder, **changes), CpuBackend())


def pooled(model: LoadedModel) -> PooledModel:
    assert model.pooled is not None
    return model.pooled


def rows(model: LoadedModel, given_texts: list[list[int]], types: list[list[int]] | None = None) -> torch.Tensor:
    """The engine's rows, in the order of the texts."""
    order = by_length([len(text) for text in given_texts])
    kinds = [types[index] if types else [] for index in order]
    found = pooled(model).run(pack_batch([given_texts[index] for index in order], kinds, CPU))
    return found[torch.tensor(order).argsort()]


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_rows_of_mixed_lengths_are_those_of_a_padded_batch(name: str, tmp_path: Path) -> None:
    model = load(save_texts_model(name, tmp_path))
    mixed = texts(LENGTHS)
    want = Reference(name, tmp_path).rows(mixed, pooled(model).pooling, normalize=True)
    torch.testing.assert_close(rows(model, mixed), want, rtol=1e-4, atol=1e-5)
    assert model.task == ("score" if name.endswith("-score") else "embed")
    assert model.max_model_length == (254 if "roberta" in name else 256)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_the_pooling_comes_from_the_folder_or_the_option(pooling: str, tmp_path: Path) -> None:
    flag = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}[pooling]
    save_texts_model("bert", tmp_path, pooling=flag)
    mixed = texts(LENGTHS)
    want = Reference("bert", tmp_path).rows(mixed, pooling, normalize=False)
    torch.testing.assert_close(rows(load(tmp_path), mixed), want, rtol=1e-4, atol=1e-4)
    write_sentence_files(tmp_path, {"pooling_mode": "max"}, normalize=True)
    with pytest.raises(ModelInvalid, match=r"The pooling in .* is max; one of"):
        load(tmp_path)
    write_sentence_files(tmp_path, {"pooling_mode": "mean"}, normalize=True)
    want = torch.nn.functional.normalize(want, dim=-1)
    torch.testing.assert_close(rows(load(tmp_path, pooling=pooling), mixed), want, rtol=1e-4, atol=1e-5)


def test_pairs_carry_their_token_types(tmp_path: Path) -> None:
    model = load(save_texts_model("bert-score", tmp_path))
    mixed = texts([30, 9, 80])
    types = [[0] * 10 + [1] * 20, [0] * 9, [0] * 40 + [1] * 40]
    want = Reference("bert-score", tmp_path).rows(mixed, "cls", normalize=False, types=types)
    torch.testing.assert_close(rows(model, mixed, types), want, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(rows(model, mixed), want, atol=1e-3)


def test_a_score_is_a_logit_where_the_config_names_the_identity(tmp_path: Path) -> None:
    save_texts_model("bert-score", tmp_path)
    mixed = texts(LENGTHS)
    shown = rows(load(tmp_path), mixed)
    config = BertConfig.from_pretrained(tmp_path)
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    config.save_pretrained(tmp_path)
    torch.testing.assert_close(torch.sigmoid(rows(load(tmp_path), mixed)), shown)
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.activation.Tanh"}
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelInvalid, match=r"Tanh for scores is not computed here; Sigmoid and Identity are"):
        load(tmp_path)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 512), min_size=1, max_size=64))
def test_padding_stays_within_its_bound_and_every_token_in_its_place(lengths: list[int]) -> None:
    lengths.sort()
    mixed = [list(range(length)) for length in lengths]
    batch = pack_batch(mixed, [()] * len(mixed), CPU)
    assert batch.computed_rows <= (1 + MAX_PADDING) * sum(lengths)
    assert batch.input_ids[0].tolist() == batch.position_ids[0].tolist() == [p for text in mixed for p in text]
    assert sum(group.tokens for group in batch.groups) == sum(lengths)
    assert sum(group.rows for group in batch.groups) == len(lengths)


def test_a_text_is_the_same_alone_and_among_others(tmp_path: Path) -> None:
    model = load(save_texts_model("modernbert", tmp_path))
    dice = random.Random(1)
    mixed = texts([dice.randint(1, 200) for _ in range(40)])
    alone = torch.cat([rows(model, [text]) for text in mixed])
    torch.testing.assert_close(rows(model, mixed), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "bert-score", "qwen3-score"])
def test_rows_in_bfloat16_are_near(name: str, tmp_path: Path) -> None:
    model = load(save_texts_model(name, tmp_path), dtype="bfloat16")
    mixed = texts(LENGTHS)
    want = Reference(name, tmp_path).rows(mixed, pooled(model).pooling, normalize=True)
    torch.testing.assert_close(rows(model, mixed), want, rtol=0.1, atol=0.1)


def test_usual_length_is_the_folders_own(tmp_path: Path) -> None:
    save_texts_model("bert", tmp_path, pooling="mean_tokens")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 128, "do_lower_case": false}')
    assert load(tmp_path).max_model_length == 128
    assert load(tmp_path, max_model_length=200).max_model_length == 200
    with pytest.raises(InvalidOption, match="257 exceeds the 256 positions"):
        load(tmp_path, max_model_length=257)


def test_an_unsupported_pooling_model_is_rejected_with_a_sentence(tmp_path: Path) -> None:
    attention.register()
    many = tmp_path / "many"
    BertForSequenceClassification(BertConfig(**ENCODER, num_labels=3)).save_pretrained(many)
    with pytest.raises(ModelInvalid, match="3 classes; a cross-encoder gives one score"):
        load(many)
    headless = tmp_path / "headless"
    BertModel(BertConfig(**ENCODER, num_labels=1)).save_pretrained(headless)
    with pytest.raises(ModelInvalid, match=r"lack 2 that BertForSequenceClassification needs to score .*classifier"):
        load(headless, task="score")
    biased = tmp_path / "biased"
    DebertaV2Model(DebertaV2Config(**ENCODER)).save_pretrained(biased)
    with pytest.raises(ModelInvalid, match="does not go through transformers' attention interface"):
        load(biased)
    dense = save_texts_model("bert", tmp_path / "dense")
    write_sentence_files(dense, {"pooling_mode_mean_tokens": True}, extra=["Dense"])
    with pytest.raises(ModelInvalid, match="has the step Dense"):
        load(dense)
    with pytest.raises(ModelInvalid, match="attention is bidirectional, so it cannot generate"):
        load(dense, task="generate")
    with pytest.raises(InvalidOption, match="--pooling median is not known"):
        load(save_texts_model("bert", tmp_path / "plain"), pooling="median")
