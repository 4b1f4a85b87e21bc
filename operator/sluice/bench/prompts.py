"""The prompts of a load: a file of the user, or the corpus of the tiny model."""

import json
from pathlib import Path

from sluice.bench.load import BenchError, Prompt


def corpus_prompts(*, check: bool) -> tuple[Prompt, ...]:
    """The questions that the tiny model learned; with their answers to `check` against. Raises BenchError."""
    try:
        from sluice_engine.tiny import corpus
    except ModuleNotFoundError as missing:
        raise BenchError(
            "The corpus comes with the engine, which is not installed here: give --prompts FILE."
        ) from missing
    return tuple(Prompt(pair.question, pair.answer if check else None) for pair in corpus.load())


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file of JSON lines. Raises BenchError with the number of a bad line."""
    found = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise BenchError(f"{path} cannot be read: {failure}.") from failure
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            text, expect = item["prompt"], item.get("expect")
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            raise BenchError(f'{path}:{number} is not a JSON object with a "prompt".') from wrong
        if not isinstance(text, str) or not isinstance(expect, str | None):
            raise BenchError(f'{path}:{number}: "prompt" and "expect" must be strings.')
        found.append(Prompt(text, expect))
    return tuple(found)
