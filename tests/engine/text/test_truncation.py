"""Only the first tokens of texts: special tokens stay, and what is cut off costs no memory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from sluice_engine.text.truncation import NoRoom, encode_first, shares
from tests.engine.texts import save_texts_model, save_tokenizer

MEMORY = 32 << 20  # bytes


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = save_tokenizer(save_texts_model("bert-score", tmp_path_factory.mktemp("bert-score")))
    return str(folder / "tokenizer.json")


def test_texts_are_shortened_as_by_transformers(file: str) -> None:
    reference = PreTrainedTokenizerFast(tokenizer_file=file)
    for texts in (("a small animal",), ("what is a cat", "iron"), ("iron", "the sea is deep and cold in winter")):
        for most in range(len(texts) + 3, 60):
            expected = reference(*texts, truncation=True, max_length=most, return_token_type_ids=True)
            found = encode_first(Tokenizer.from_file(file), texts, most)
            assert found == (list(expected["input_ids"]), list(expected["token_type_ids"])), (texts, most)


def test_what_is_cut_off_costs_no_memory(file: str) -> None:
    text = "many words " * 2000
    tokenizer = Tokenizer.from_file(file)
    before = _resident()
    ids, types = encode_first(tokenizer, (text, text), 12)
    assert len(ids) == len(types) == 12
    assert _resident() - before < MEMORY


def test_too_few_tokens_for_the_texts_are_said(file: str) -> None:
    tokenizer = Tokenizer.from_file(file)
    with pytest.raises(NoRoom) as caught:
        encode_first(tokenizer, ("a", "b"), 1)
    least = caught.value.least
    assert len(encode_first(tokenizer, ("a word", "another"), least)[0]) == least


@given(lengths=st.lists(st.integers(0, 100), min_size=1, max_size=2), room=st.integers(2, 100))
def test_shares_fill_the_room_and_shorten_the_longer_text(lengths: list[int], room: int) -> None:
    kept = shares(lengths, room)
    assert sum(kept) == min(room, sum(lengths))
    assert all(0 <= part <= length for part, length in zip(kept, lengths, strict=True))
    if len(lengths) == 2 and kept[0] < lengths[0] and kept[1] < lengths[1]:
        assert abs(kept[0] - kept[1]) <= 1


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
