"""Penalties, score offsets, bad words and grammars of decode steps on the device: the tokens are those of the engine's sampler."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sluice_engine import messages
from sluice_engine.backend.cuda.runner import PendingDecode
from sluice_engine.backend.cuda.sampling import offsets
from sluice_engine.backend.cuda.sampling.masks import DeviceMasks
from sluice_engine.backend.runner import StepResult
from sluice_engine.core.engine import EngineLoop
from sluice_engine.grammar import Grammar
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling.grammar_masks import PackedMasks, with_barred
from sluice_engine.sampling.token_mask import packed_mask, token_mask
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.backend.cuda.test_graph_books import CPU, EagerBackend, Watched, compare
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import finish, options, run, submit

LIST = {"type": "array", "minItems": 6, "maxItems": 6, "items": {"enum": ["alpha", "beta", 7]}}
GRAMMAR = Grammar("json_schema", json.dumps(LIST))
# Bars a third of the tokens, many pairs, and words that no output of 24 tokens can hold.
WORDS = (
    *((token,) for token in range(2, 128, 3)), *((one, other) for one in range(3, 128, 3) for other in range(4, 128, 6)),
    tuple(range(40)), (1 << 20,),
)  # fmt: skip
FEATURES: dict[str, dict[str, object]] = {
    "plain": {},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.7, "temperature": 0.9, "seed": 5},
    "repetition": {"repetition_penalty": 1.3, "temperature": 0.8, "seed": 6, "top_k": 30},
    "bias": {"logit_bias": {11: 4.0, 12: -100.0, 13: 3.5}, "temperature": 1.0, "seed": 7},
    "words": {"bad_words": WORDS},
    "drawn words": {"bad_words": WORDS, "temperature": 0.9, "seed": 9, "frequency_penalty": 0.5},
    "until": {"min_tokens": 9, "logit_bias": {1: 100.0}, "ignore_eos": False},
    "all": {
        "min_tokens": 4, "logit_bias": {9: 2.0, 10: -3.0}, "presence_penalty": 0.5, "frequency_penalty": 0.5,
        "repetition_penalty": 1.1, "temperature": 1.1, "seed": 8, "top_p": 0.9, "min_p": 0.01,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES["llama"](), tmp_path_factory.mktemp("llama"))


class Steps:
    """How the steps of a watched engine were executed."""

    def __init__(self, watched: Watched) -> None:
        self.kinds: Counter[str] = Counter()
        runner = watched.runner
        decode, again = runner._decode, runner._again

        def counted(pending: PendingDecode) -> StepResult:
            self.kinds["early" if pending.early else "late"] += 1
            return decode(pending)

        def rerun(pending: PendingDecode) -> StepResult:
            self.kinds["again"] += 1
            return again(pending)

        runner._decode, runner._again = counted, rerun  # type: ignore[method-assign]


def one_of_each(engine: EngineLoop) -> dict[str, list[int]]:
    for index, (name, more) in enumerate(FEATURES.items()):
        submit(engine, name, [5 + index, 6, 7, 9, 5 + index], 24, **({"ignore_eos": True} | more))
    return finish(engine)


def joining(engine: EngineLoop) -> dict[str, list[int]]:
    """Requests with random features that join and leave: slots pass from one feature to another."""
    dice, texts = random.Random(2), dict[str, list[int]]()
    waiting = [f"r{index}" for index in range(24)]
    while waiting or engine.has_work:
        if waiting and dice.random() < 0.3:
            more = {"ignore_eos": True} | FEATURES[dice.choice(list(FEATURES))]
            prompt = [dice.randrange(2, 128) for _ in range(dice.randint(1, 30))]
            submit(engine, waiting.pop(), prompt, dice.randint(10, 24), **more)
        report = engine.step()
        for delta in () if report is None else report.deltas:
            texts.setdefault(delta.request_id, []).extend(delta.token_ids)
    return texts


def test_every_feature_gets_the_tokens_of_the_engines_sampler(llama: Path) -> None:
    watched = compare(llama, one_of_each)
    assert watched.queue.most == 2
    assert watched.capture.replays > 18  # nearly all steps


def test_bad_words_change_the_output_and_are_not_in_it(llama: Path) -> None:
    watched = Watched(llama)
    steps = Steps(watched)
    for name, more in {"plain": {}, "barred": {"bad_words": WORDS}}.items():
        submit(watched.engine, name, [5, 6, 7], 24, ignore_eos=True, **more)
    got = finish(watched.engine)
    assert got["plain"] != got["barred"]
    ends = [tuple(got["barred"][: end + 1]) for end in range(24)]
    assert not [(word, text) for word in WORDS for text in ends if text[-len(word) :] == word]
    assert steps.kinds["early"] > 18 and not steps.kinds["again"]


@pytest.mark.parametrize("most", [1, 2])  # all offsets beside the table, or some
def test_offsets_beyond_the_table_get_the_tokens_of_the_engines_sampler(
    most: int, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "MOST_OFFSETS", most)
    watched = compare(llama, one_of_each)
    assert watched.capture.replays > 18
    compare(llama, joining)


def test_features_take_turns_in_a_slot(llama: Path) -> None:
    assert compare(llama, joining).queue.most == 2


def test_the_tokens_of_a_failed_step_are_not_counted(llama: Path) -> None:
    def load(engine: EngineLoop) -> dict[str, list[int]]:
        for index in range(3):
            submit(engine, str(index), [5, 6, 7], 30, ignore_eos=True, frequency_penalty=0.3 * (index + 1))
        return finish(engine)

    watched = Watched(llama)
    steps, replay, replays = Steps(watched), watched.runner.graphs.replay, 0

    def failing(size: int) -> None:
        nonlocal replays
        replays += 1
        if replays == 9:
            raise RuntimeError("the kernel failed")
        replay(size)

    watched.runner.graphs.replay = failing  # type: ignore[method-assign]
    eager = EngineLoop(options(llama, max_num_seqs=18, speculation="off"), backend=EagerBackend(CPU, FixedMemory()))
    assert load(watched.engine) == load(eager)
    assert steps.kinds["again"] == 2


def with_grammars(engine: EngineLoop) -> dict[str, list[int]]:
    for index in range(3):
        more = {"temperature": 0.9, "seed": index, "presence_penalty": 0.2} if index else {}
        submit(engine, f"grammar-{index}", [40 + index, 41, 42], 120, grammar=GRAMMAR, **more)
    submit(engine, "plain", [50, 51], 60, ignore_eos=True)
    submit(engine, "penalised", [50, 52], 60, ignore_eos=True, repetition_penalty=1.2)
    return finish(engine)


def test_grammars_beside_other_requests_get_the_tokens_of_the_engines_sampler(tiny_model: Path) -> None:
    texts: list[dict[str, list[int]]] = []

    def load(engine: EngineLoop) -> dict[str, list[int]]:
        texts.append(with_grammars(engine))
        return texts[-1]

    watched = compare(tiny_model, load)
    longest = max(len(texts[0][f"grammar-{index}"]) for index in range(3))
    assert watched.capture.replays > 50
    assert watched.masked >= longest - 1 > 8  # the first token is a prefill's


def test_the_graph_of_a_step_with_grammars_is_enqueued_before_the_preceding_step_has_ended(tiny_model: Path) -> None:
    watched = Watched(tiny_model)
    steps = Steps(watched)
    with_grammars(watched.engine)
    assert steps.kinds["early"] > 50
    assert steps.kinds["late"] + steps.kinds["again"] < 10


def test_a_grammar_that_fails_ends_its_own_request_with_the_reason(tiny_model: Path) -> None:
    watched = Watched(tiny_model)
    masks = watched.runner._sampler._grammars
    assert masks is not None
    packed, asked = masks.packed, 0

    def failing(rows):  # type: ignore[no-untyped-def]
        nonlocal asked
        asked += 1
        found = packed(rows)
        if asked < 5:
            return found
        words = found.words.copy()
        words[0] = 0
        return PackedMasks(found.rows, words, {found.rows[0]: "its grammar failed: too many items"})

    masks.packed = failing  # type: ignore[method-assign]
    submit(watched.engine, "fails", [40, 41, 42], 60, grammar=GRAMMAR)
    submit(watched.engine, "goes on", [50, 51], 20, ignore_eos=True)
    ended = {each.request_id: each for report in run(watched.engine) for each in report.deltas if each.finish}
    assert (ended["fails"].finish, ended["fails"].error) == ("error", "its grammar failed: too many items")
    assert ended["goes on"].finish == "length"


def test_masks_reach_their_rows_and_no_others() -> None:
    masks = DeviceMasks(rows=4, vocabulary=70, device=CPU)
    words = np.stack([packed_mask([1, 69], 70), packed_mask([], 70)])
    masks.upload(0, masks.write(0, PackedMasks([2, 0], words)), 3)
    allowed = [np.flatnonzero(np.isfinite(token_mask(row.numpy(), 70).as_penalty(70))).tolist() for row in masks.words]
    assert allowed == [[], list(range(70)), [1, 69], list(range(70))]
    masks.upload(1, 0, 3)
    assert bool((masks.words == -1).all())


def test_a_grammar_with_bad_words_allows_what_both_do(tiny_model: Path) -> None:
    texts: list[dict[str, list[int]]] = []

    def load(engine: EngineLoop) -> dict[str, list[int]]:
        plain = texts[0]["grammar-0"] if texts else with_grammars(engine)["grammar-0"]
        texts.append({"grammar-0": plain})
        for index, words in enumerate([((plain[4],),), ((plain[5], plain[6]), (plain[2],))]):
            submit(engine, f"barred-{index}", [40, 41, 42], 60, grammar=GRAMMAR, bad_words=words)
        return finish(engine)

    watched = compare(tiny_model, load)
    assert watched.masked > 10


def test_no_token_is_allowed_that_a_mask_or_a_word_bars() -> None:
    words = np.stack([packed_mask([1, 40, 69], 70), np.zeros(3, np.int32)])
    masks = with_barred(PackedMasks([2, 0], words, {0: "failed"}), {2: [40], 3: [0, 69]}, 70)
    allowed = {
        row: np.flatnonzero(np.isfinite(token_mask(each, 70).as_penalty(70))).tolist()
        for row, each in zip(masks.rows, masks.words, strict=True)
    }
    assert allowed == {2: [1, 69], 0: [], 3: list(range(1, 69))}
    assert masks.faults == {0: "failed"}


def scored(engine: EngineLoop, *more: int) -> dict[str, list[TokenLogprob]]:
    """The logprobs of requests that ask for them, beside one that does not. `more`: further numbers of top tokens."""
    for index, (count, features) in enumerate(
        [(0, {}), (3, {"presence_penalty": 1.0}), (20, {"temperature": 1.0, "seed": 4}), *((each, {}) for each in more)]
    ):
        submit(engine, str(count), [5 + index, 6, 7], 12, ignore_eos=True, logprobs=count, **features)
    submit(engine, "none", [9, 8], 20, ignore_eos=True)
    found: dict[str, list[TokenLogprob]] = {}
    for report in run(engine):
        for delta in report.deltas:
            found.setdefault(delta.request_id, []).extend(delta.logprobs)
    return found


@pytest.mark.parametrize("more", [(), (40,), (40, 1024)])
def test_logprobs_of_decode_steps_are_those_of_the_engines_sampler(more: tuple[int, ...], llama: Path) -> None:
    watched = Watched(llama)
    steps, got = Steps(watched), scored(watched.engine, *more)
    want = scored(EngineLoop(watched.engine.options, backend=EagerBackend(CPU, FixedMemory())), *more)
    assert steps.kinds["early"] > 9 and not steps.kinds["again"]
    assert {name: len(each) for name, each in got.items()} == dict.fromkeys(map(str, (0, 3, 20, *more)), 12) | {
        "none": 0
    }
    for name, logprobs in got.items():
        for one, other in zip(logprobs, want[name], strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]
            assert [each for _, each in one.top] == pytest.approx([each for _, each in other.top], abs=1e-5)
            assert len(one.top) == min(int(name), 128)


def test_a_request_without_a_finite_score_fails_with_penalties_too(llama: Path) -> None:
    watched = Watched(llama)
    download, downloads = watched.runner.decode_step.readback.download, 0

    def poisoned(index: int, size: int, logprobs: int = 0) -> None:
        nonlocal downloads
        downloads += 1
        if downloads == 4:
            watched.runner.decode_step.readback.sampled[0] = -1
        download(index, size, logprobs)

    watched.runner.decode_step.readback.download = poisoned  # type: ignore[method-assign]
    submit(watched.engine, "a", [5, 6], 20, ignore_eos=True, presence_penalty=1.0)
    ended: list[messages.Delta] = [each for report in run(watched.engine) for each in report.deltas if each.finish]
    assert [each.finish for each in ended] == ["error"]
