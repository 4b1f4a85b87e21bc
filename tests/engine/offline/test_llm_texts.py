"""LLM.embed and LLM.score: vectors and scores in process, as transformers gives them."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from sluice_engine import LLM
from tests.engine.texts import Reference, save_texts_model, save_tokenizer, texts


def test_texts_are_embedded_in_order_and_invalid_texts_raise(tmp_path: Path) -> None:
    save_tokenizer(save_texts_model("qwen3", tmp_path))
    llm = LLM(tmp_path, threads=1, max_batched_tokens=200)
    given = texts([30, 100, 1, 64, 256, 9])
    want = Reference("qwen3", tmp_path).rows(given, "last", normalize=True)
    torch.testing.assert_close(torch.tensor(llm.embed(given)), want, rtol=1e-4, atol=1e-5)
    words = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("some words").ids
    assert llm.embed("some words") == llm.embed([words])
    with pytest.raises(ValueError, match=r"text 1 has 257 tokens; .* has 256 positions: shorten or split it"):
        llm.embed([[5], [5] * 257])
    with pytest.raises(ValueError, match="text 0 has a token id outside the vocabulary of 128"):
        llm.embed([[128]])
    with pytest.raises(ValueError, match="this model does not generate; it is loaded to embed"):
        llm.generate("hi")
    with torch.no_grad():
        llm._engine.model.module.get_input_embeddings().weight[99] = float("nan")
    with pytest.raises(RuntimeError, match="a text failed: the model's output for this request is not a number"):
        llm.embed([[5, 6], [5, 99], *([5] * 200 for _ in range(4))])
    assert llm._engine.finish_running_steps() == []  # no step is under way any more
    assert not llm._engine.scheduler.requests


def test_documents_are_scored_against_a_query(tmp_path: Path) -> None:
    save_tokenizer(save_texts_model("bert-score", tmp_path))
    documents = ["one", "two words", "three more words"]
    encoded = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode_batch(
        [("which", each) for each in documents]
    )
    want = Reference("bert-score", tmp_path).rows(
        [each.ids for each in encoded], "cls", normalize=False, types=[each.type_ids for each in encoded]
    )
    llm = LLM(tmp_path, threads=1)
    torch.testing.assert_close(llm.score("which", documents), want[:, 0].tolist(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="this model does not embed; it is loaded to score"):
        llm.embed("text")
