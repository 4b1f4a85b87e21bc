"""The corpus is data that ships with the engine and reads without torch."""

import subprocess
import sys

from sluice_engine.tiny import corpus
from sluice_engine.tiny.recipe import CHAT_TEMPLATE, Recipe, generation_prompt


def test_there_are_at_least_150_distinct_questions() -> None:
    pairs = corpus.load()
    assert len(pairs) >= 150
    assert len({variant for pair in pairs for variant in corpus.variants(pair.question)}) >= 3 * len(pairs)
    assert len({pair.question.rstrip("?").lower() for pair in pairs}) == len(pairs)


def test_answers_are_sentences_of_different_lengths() -> None:
    answers = [pair.answer for pair in corpus.load()]
    assert all(answer[0].isupper() and answer.endswith(".") for answer in answers)
    assert len({len(answer) for answer in answers}) > 60


def test_the_key_changes_with_the_seed_and_only_then() -> None:
    assert Recipe().key() == Recipe(seed=0).key()
    assert Recipe(seed=1).key() != Recipe().key()


def test_training_rows_have_exactly_the_form_of_the_chat_template() -> None:
    import jinja2

    rendered = (
        jinja2.Environment(autoescape=False)
        .from_string(CHAT_TEMPLATE)
        .render(messages=[{"role": "user", "content": "What is a token?"}], add_generation_prompt=True)
    )
    assert rendered == generation_prompt("What is a token?")


def test_the_package_and_its_corpus_load_without_torch() -> None:
    code = (
        "import sys; from sluice_engine import tiny; from sluice_engine.tiny import corpus; corpus.load(); "
        "tiny.Recipe().key(); sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
