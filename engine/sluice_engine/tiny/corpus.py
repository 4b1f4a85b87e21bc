"""The questions and answers the tiny model learns, readable without torch.

`sluice bench`, the demo and the e2e story ask these questions and know the answer that greedy decoding must give.
"""

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Pair:
    """One question and the answer the model gives to it, word for word, under greedy decoding."""

    topic: str
    question: str
    answer: str


def source() -> bytes:
    """The corpus file as shipped: what the cache key of a trained model is made of."""
    return resources.files(__package__).joinpath("corpus.toml").read_bytes()


def load() -> tuple[Pair, ...]:
    """All pairs in the order of the file."""
    topics: dict[str, dict[str, str]] = tomllib.loads(source().decode())
    return tuple(Pair(topic, question, answer) for topic, pairs in topics.items() for question, answer in pairs.items())


def variants(question: str) -> tuple[str, ...]:
    """Ways people type the same question; the model learns the same answer to each of them."""
    bare = question.rstrip("?")
    return (question, bare, question.lower(), bare.lower())
