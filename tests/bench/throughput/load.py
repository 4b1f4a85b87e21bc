"""The two loads of the engine comparison, and per-round prompts that no cache has seen."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[2] / "data"
VOCABULARY = 8192
CONCURRENCY = 64  # most concurrent requests, on every side


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts as token ids, and the number of output tokens of each."""

    name: str
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Output tokens in total."""
        return sum(self.max_tokens)

    def turned(self, by: int) -> "Load":
        """The same lengths with every token id shifted by `by`, so that no prefix of an earlier round is in a cache."""
        moved = tuple(tuple((token + by) % VOCABULARY for token in prompt) for prompt in self.prompts)
        return Load(self.name, moved, self.max_tokens)

    def warm_up(self, requests: int, most_tokens: int) -> "Load":
        """Other prompts of the same lengths, `requests` of them, each with `most_tokens` output tokens at most."""
        dice = random.Random(1)
        prompts = tuple(tuple(dice.randrange(VOCABULARY) for _ in prompt) for prompt in self.prompts[:requests])
        return Load("warm-up", prompts, tuple(min(most_tokens, most) for most in self.max_tokens[:requests]))

    def part(self, number: int, of: int, whole: int) -> "Load":
        """Part `number` of `of` equal parts, each of whole batches of `whole` requests.

        Raises ValueError if the batches cannot be divided evenly.
        """
        batches, rest = divmod(len(self.prompts), whole)
        if rest or batches % of:
            raise ValueError(f"{len(self.prompts)} requests are not {of} equal parts of batches of {whole}")
        size = batches // of * whole
        here = slice(number * size, (number + 1) * size)
        return Load(self.name, self.prompts[here], self.max_tokens[here])


def read(name: str) -> Load:
    """Read `tests/data/<name>.json`."""
    rows = json.loads((DATA / f"{name}.json").read_text())
    return Load(
        name, tuple(tuple(row["prompt_token_ids"]) for row in rows), tuple(int(row["max_tokens"]) for row in rows)
    )
