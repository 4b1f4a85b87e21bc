"""The questions and answers that the tiny model learns, readable without torch.

`sluice bench`, the demo and the e2e story ask these questions and expect the greedy answers.
"""

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Pair:
    """One question and the model's exact answer to it under greedy decoding."""

    topic: str
    question: str
    answer: str


def source() -> bytes:
    """The corpus file as shipped; part of the cache key of a trained model."""
    return resources.files(__package__).joinpath("corpus.toml").read_bytes()


def load() -> tuple[Pair, ...]:
    """All pairs in file order."""
    topics: dict[str, dict[str, str]] = tomllib.loads(source().decode())
    return tuple(Pair(topic, question, answer) for topic, pairs in topics.items() for question, answer in pairs.items())


def variants(question: str) -> tuple[str, ...]:
    """Spellings of the same question; the model learns the same answer to each."""
    bare = question.rstrip("?")
    return (question, bare, question.lower(), bare.lower())
