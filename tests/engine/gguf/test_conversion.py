"""A GGUF file becomes a folder that gives transformers' own tokens; a file that cannot is refused with a reason."""

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sluice_engine.core.engine import EngineLoop
from sluice_engine.errors import ModelInvalid
from sluice_engine.gguf import find_gguf
from sluice_engine.gguf.dequantise import dequantise
from sluice_engine.pulled import pull, read_origin
from sluice_engine.pulled.pulling import converted_entry
from sluice_engine.sources import cached_models
from sluice_engine.text import load_text_model
from sluice_engine.text.tokenizer import Message
from tests.engine.gguf_file import CONTROL, small_llama, write_gguf
from tests.engine.oracle import finish, options, submit

PROMPTS = ([5, 9, 120, 33], [1, 44, 45, 46, 47, 200, 7], [77])


def silent(_: object) -> None:
    """A receiver of stages."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantised file; transformers would read other GGUF files of its folder as parts of it."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.Q8_0.gguf")


@pytest.fixture(scope="module")
def converted(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, converted to float32 in a process of its own and kept in a cache."""
    cache, stages = tmp_path_factory.mktemp("cache"), list[object]()
    folder = pull(str(file), "float32", cache, stages.append)
    assert stages == ["reading", "dequantising", "writing"]
    return folder


def test_a_converted_file_is_kept_under_its_path_content_and_dtype(file: Path, converted: Path) -> None:
    cache = converted.parents[1]
    again = pull(str(file), "float32", cache, lambda event: pytest.fail(f"converted again: {event}"))
    assert again == converted
    assert [model.uri for model in cached_models(cache)] == [str(file)]
    origin = read_origin(converted)
    assert origin is not None and (origin.source, origin.licence) == (file.name, "apache-2.0")
    places = {converted_entry(file, "float32", cache).folder, converted_entry(file, "bfloat16", cache).folder}
    os.utime(file, ns=(1, 1))
    places.add(converted_entry(file, "float32", cache).folder)
    assert len(places) == 3 and converted in places


def test_the_engine_gives_the_greedy_tokens_of_transformers_own_gguf_model(file: Path, converted: Path) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    engine = EngineLoop(options(converted, dtype="float32"))
    for number, prompt in enumerate(PROMPTS):
        submit(engine, str(number), list(prompt), 24)
    texts = finish(engine)
    for number, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        want = theirs.generate(ids, attention_mask=mask, max_new_tokens=24, do_sample=False, pad_token_id=0)
        tokens = want[0, len(prompt) :].tolist()
        assert texts[str(number)] == (tokens[: tokens.index(2)] if 2 in tokens else tokens)


def test_float_weights_come_back_bit_for_bit_in_the_order_of_transformers(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "plain.gguf", quantised=False)
    dequantise(file, tmp_path / "model", "float32", silent)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).state_dict()
    for name, tensor in small_llama().state_dict().items():
        assert torch.equal(found[name], tensor), name


def test_the_folder_has_the_dtype_asked_for_and_no_mark_of_quantisation(file: Path, tmp_path: Path) -> None:
    dequantise(file, tmp_path / "model", "bfloat16", silent)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config


def test_the_server_reads_its_tokenizer_and_chat_template(file: Path, converted: Path) -> None:
    text = load_text_model(converted)
    assert text.stop_token_ids == (CONTROL.index("<|im_end|>"),)
    theirs = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    assert text.encode_prompt("the path") == theirs("the path").input_ids
    messages = [{"role": "user", "content": "the <|im_end|> path"}]
    ids = text.encode_chat([Message("user", "the path")])
    assert ids == theirs.apply_chat_template([messages[0] | {"content": "the path"}], return_dict=False)


def test_a_truncated_file_is_named_with_its_missing_bytes(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    short = tmp_path / "short.gguf"
    short.write_bytes(whole[:-1000])
    with pytest.raises(ModelInvalid, match=rf"truncated: it has {len(whole) - 1000} of {len(whole)} bytes"):
        dequantise(short, tmp_path / "model", "float32", silent)
    short.write_bytes(whole[:500])
    with pytest.raises(ModelInvalid, match="may be truncated or damaged"):
        dequantise(short, tmp_path / "model", "float32", silent)
    assert not (tmp_path / "model").exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "page.gguf"
    other.write_text("<html>not found</html>" * 10)
    with pytest.raises(ModelInvalid, match="not a GGUF file"):
        dequantise(other, tmp_path / "model", "float32", silent)


def test_an_unsupported_architecture_is_named_with_those_that_are(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "vision.gguf", architecture="clip")
    with pytest.raises(ModelInvalid, match=r"architecture 'clip'.*llama.*qwen3.*safetensors instead"):
        dequantise(file, tmp_path / "model", "float32", silent)


def test_a_full_disk_is_found_before_anything_is_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 10}))
    with pytest.raises(OSError, match="GiB are free"):
        dequantise(file, tmp_path / "model", "float32", silent)
    assert not (tmp_path / "model").exists()


def test_a_path_names_a_gguf_file_or_the_only_one_of_a_folder(tmp_path: Path) -> None:
    assert find_gguf(tmp_path) is None
    first = tmp_path / "a.Q4_0.gguf"
    first.touch()
    assert find_gguf(tmp_path) == find_gguf(first) == first
    (tmp_path / "model.safetensors").touch()
    assert find_gguf(tmp_path) is None, "safetensors are what the engine loads"


def test_several_gguf_files_and_parts_of_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a-00001-of-00002.gguf").touch()
    with pytest.raises(ModelInvalid, match="llama-gguf-split --merge"):
        find_gguf(tmp_path)
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelInvalid, match=r"2 GGUF files \(a-00001-of-00002.gguf, b.gguf\)"):
        find_gguf(tmp_path)
