"""Plain transformers and plain tokenizers load the tiny model, and it answers its questions word for word."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from sluice_engine.tiny import NotLearned, Recipe, corpus, ensure, tokenizer
from sluice_engine.tiny.recipe import TURN_END, generation_prompt


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> torch.nn.Module:
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(tiny_model)


def greedy(model: torch.nn.Module, words: Tokenizer, prompt: str) -> str:
    asked = words.encode(prompt).ids
    out = model.generate(
        input_ids=torch.tensor([asked]), attention_mask=torch.ones(1, len(asked), dtype=torch.long), max_new_tokens=96
    )
    answered = out[0, len(asked) :].tolist()
    assert answered[-1] == words.token_to_id(TURN_END)
    return words.decode(answered[:-1])


def test_the_config_is_a_small_grouped_query_llama_in_float32(tiny_model: Path) -> None:
    config = json.loads((tiny_model / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "float32"
    assert config["num_attention_heads"] == 2 * config["num_key_value_heads"]
    assert config["max_position_embeddings"] >= 2048
    assert 900 <= config["vocab_size"] <= 1024
    assert config["eos_token_id"] == json.loads((tiny_model / "generation_config.json").read_text())["eos_token_id"]


def test_any_user_may_read_the_files(tiny_model: Path) -> None:
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in tiny_model.iterdir())


def test_the_tokenizer_is_the_same_each_time_it_is_made(tiny_model: Path) -> None:
    saved = (tiny_model / "tokenizer.json").read_text()
    assert json.loads(tokenizer.make(Recipe()).to_str()) == json.loads(saved)


def test_the_tokenizer_round_trips_any_text(tiny_model: Path) -> None:
    words = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    for text in ("plain", " two  spaces ", "Zwölf Boxkämpfer 🥊\n\tjagen", "\u0000\uffff"):
        assert words.decode(words.encode(text).ids) == text


def test_transformers_renders_the_form_the_model_was_trained_on(tiny_model: Path) -> None:
    auto = AutoTokenizer.from_pretrained(tiny_model)
    words = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    messages = [{"role": "user", "content": "What is TTFT?"}]
    rendered = auto.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert rendered == generation_prompt("What is TTFT?")
    assert auto(rendered, add_special_tokens=False)["input_ids"] == words.encode(rendered).ids
    assert auto.eos_token == TURN_END


@pytest.mark.parametrize("pair", corpus.load()[::8], ids=lambda pair: pair.question)
def test_greedy_decoding_gives_the_answer(model: torch.nn.Module, tiny_model: Path, pair: corpus.Pair) -> None:
    words = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    assert greedy(model, words, generation_prompt(pair.question)) == pair.answer


def test_spelling_of_the_question_does_not_matter(model: torch.nn.Module, tiny_model: Path) -> None:
    words = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    pair = corpus.load()[20]
    assert {greedy(model, words, generation_prompt(asked)) for asked in corpus.variants(pair.question)} == {pair.answer}


def test_every_answer_is_the_arg_max_at_every_position(tiny_model: Path) -> None:
    from sluice_engine.tiny import train

    words = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    margins = train.margins(AutoModelForCausalLM.from_pretrained(tiny_model), train.rows_of(words))
    assert min(margins.values()) > 0.2


def test_ensure_copies_the_cached_model_where_it_is_asked_to(tiny_model: Path, tmp_path: Path) -> None:
    made = ensure(tmp_path / "copy")
    assert {file.name for file in made.iterdir()} == {file.name for file in tiny_model.iterdir()}
    assert (made / "model.safetensors").read_bytes() == (tiny_model / "model.safetensors").read_bytes()


def test_two_trainings_of_one_recipe_give_one_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from sluice_engine.tiny.train import train

    short = Recipe(steps=4, max_steps=3, batch_size=4)
    assert [train(tmp_path / name, short).step for name in ("a", "b")] == [3, 3]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_model_that_has_not_learned_its_answers_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where the cache is, and nothing else
    with pytest.raises(NotLearned, match="Try again"):
        ensure(recipe=Recipe(steps=4, max_steps=3, batch_size=4))
    assert [path.suffix for path in (tmp_path / "sluice").iterdir()] == [".lock"]
