"""Trains the tiny model: one minute on two cores, and still able to answer in sentences.

The model memorises each answer, for several spellings of the question and sometimes after another exchange. The loss
covers answers only. Training ends when every answer token is the argmax by a clear margin, so that bfloat16 gives the
same text.
"""

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from sluice_engine.tiny import corpus, tokenizer
from sluice_engine.tiny.recipe import END_OF_TEXT, TURN_END, Recipe, generation_prompt, turn

THREADS: Final = 2
CHECK_EVERY: Final = 25  # steps between two margin checks
LEARNED_LOSS: Final = 0.1  # nats per token; above it margins are not checked
SLOW_FACTOR: Final = 4.0  # processor-time limit as a multiple of the recipe's seconds
BUSY_FACTOR: Final = 4.0  # wall-time limit as a multiple of the processor-time limit, for shared machines
TIME_SLACK: Final = 0.1  # share of the time limit after which time drives the schedule
IGNORED: Final = -100  # label of a position that carries no loss
CLEAR_MARGIN: Final = 1.0  # logits between the right token and the next best; bfloat16 errs by about 0.05


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the training. `fraction` 0..1 of steps or time, whichever is further, 1 only at the end; `loss` in
    nats per token.
    """

    step: int
    fraction: float
    loss: float
    margin: float  # smallest logit margin over all answers at the last check; -inf before the first
    seconds: float

    @property
    def learned(self) -> bool:
        """True if greedy decoding gives every answer."""
        return self.margin > 0.0


class _Spent:
    """The used share of the time limit. It counts processor time, so that a busy machine trains longer instead of
    worse; with two free cores this equals wall time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._wall, self._processor = time.monotonic(), time.process_time()

    @property
    def wall(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._wall

    def share(self) -> float:
        """0 at the start, 1 at the time limit."""
        own = (time.process_time() - self._processor) / THREADS
        return max(min(own, self.wall), self.wall / BUSY_FACTOR) / self._seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One training row: token ids, and their labels where a loss is computed."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]


def train(directory: Path, recipe: Recipe, on_progress: Callable[[Progress], None] | None = None) -> Progress:
    """Train by `recipe` and write a model folder that transformers and tokenizers can load. Returns the last
    progress.
    """
    clock = _Spent(SLOW_FACTOR * recipe.seconds)
    words = tokenizer.make(recipe)
    with _threads(THREADS), torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = LlamaForCausalLM(_config(words, recipe))
        last = _fit(model, words, recipe, clock, on_progress)
    _save(model, words, directory, recipe)
    return last


def _save(model: LlamaForCausalLM, words: Tokenizer, directory: Path, recipe: Recipe) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    GenerationConfig(
        eos_token_id=words.token_to_id(TURN_END), pad_token_id=words.token_to_id(END_OF_TEXT), do_sample=False
    ).save_pretrained(directory)
    save_file(model.state_dict(), directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(words, directory, recipe)
    for file in directory.iterdir():
        file.chmod(0o644)  # a volume may be written by one user and read by another


def _config(words: Tokenizer, recipe: Recipe) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=words.get_vocab_size(),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_hidden_layers,
        num_attention_heads=recipe.num_attention_heads,
        num_key_value_heads=recipe.num_key_value_heads,
        max_position_embeddings=recipe.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=words.token_to_id(TURN_END),
        pad_token_id=words.token_to_id(END_OF_TEXT),
        dtype="float32",
    )


def _fit(
    model: LlamaForCausalLM,
    words: Tokenizer,
    recipe: Recipe,
    clock: _Spent,
    on_progress: Callable[[Progress], None] | None,
) -> Progress:
    rows = rows_of(words)
    weak: list[Row] = []
    draw = _batches(rows, weak, recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    margin = -math.inf
    step = 0
    model.train()
    while True:
        # On a slow machine the schedule follows time, so that it always ends with small steps. The slack keeps time
        # out of the schedule elsewhere, so that trainings are reproducible.
        spent = clock.share()
        fraction = max(step / recipe.steps, (spent - TIME_SLACK) / (1 - TIME_SLACK))
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, fraction, recipe)
        loss = _step(model, optimizer, next(draw))
        step += 1
        if step % CHECK_EVERY == 0 and loss < LEARNED_LOSS:
            found = margins(model, rows)
            margin = min(found.values())
            weak[:] = [row for row, value in found.items() if value < CLEAR_MARGIN]
        done = margin >= CLEAR_MARGIN or step >= recipe.max_steps or spent >= 1.0
        if done and margin <= 0.0 and loss < LEARNED_LOSS:  # time limit reached between two checks
            margin = min(margins(model, rows).values())
        now = Progress(step, 1.0 if done else min(fraction, 0.99), loss, margin, clock.wall)
        if on_progress is not None:
            on_progress(now)
        if done:
            model.eval()
            return now


def _schedule(step: int, fraction: float, recipe: Recipe) -> float:
    """Linear warm-up, then half a cosine down to a twentieth."""
    return min(1.0, (step + 1) / recipe.warmup_steps) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(fraction, 1))))


def rows_of(words: Tokenizer) -> list[list[Row]]:
    """The rows of each pair, one per spelling of the question."""
    return [
        [_row(words, question, pair.answer) for question in corpus.variants(pair.question)] for pair in corpus.load()
    ]


def _row(words: Tokenizer, question: str, answer: str) -> Row:
    asked = tuple(words.encode(generation_prompt(question)).ids)
    # The turn without its header: the answer, the end token, and the template's trailing newline.
    whole = tuple(words.encode(turn("user", question) + turn("assistant", answer)).ids)
    learned = whole[len(asked) : -1]
    return Row(whole, (IGNORED,) * len(asked) + learned + (IGNORED,))


def _batches(rows: Sequence[Sequence[Row]], weak: Sequence[Row], recipe: Recipe) -> Iterator[list[Row]]:
    """Endless batches: each pair occurs once before any repeats, and up to a third of a batch are rows still `weak`."""
    rng = random.Random(recipe.seed)
    waiting: list[int] = []
    while True:
        batch: list[Row] = rng.sample(weak, min(len(weak), recipe.batch_size // 3))
        while len(batch) < recipe.batch_size:
            if not waiting:
                waiting = rng.sample(range(len(rows)), len(rows))
            row = rng.choice(rows[waiting.pop()])
            if rng.random() < recipe.second_turn_share:
                before = rng.choice(rng.choice(rows))
                row = Row(before.ids + row.ids, before.labels + row.labels)
            batch.append(row)
        yield batch


def _tensors(batch: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids and next-token labels, both [rows, longest - 1]. Causal attention never attends to the
    padding.
    """
    longest = max(len(row.ids) for row in batch)
    ids = torch.tensor([row.ids + (0,) * (longest - len(row.ids)) for row in batch])
    labels = torch.tensor([row.labels + (IGNORED,) * (longest - len(row.labels)) for row in batch])
    return ids[:, :-1], labels[:, 1:]


def _answer_logits(model: LlamaForCausalLM, batch: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [answer tokens, vocabulary] and their labels; the head runs only at positions with a loss."""
    ids, labels = _tensors(batch)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = labels != IGNORED
    return model.lm_head(hidden[wanted]), labels[wanted]


def _step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, batch: Sequence[Row]) -> float:
    logits, labels = _answer_logits(model, batch)
    loss = functional.cross_entropy(logits, labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def margins(model: LlamaForCausalLM, rows: Sequence[Sequence[Row]]) -> dict[Row, float]:
    """For each row the smallest logit margin of the right token over the best other one; greedy decoding is right above
    0.
    """
    model.eval()
    flat = sorted({row for spellings in rows for row in spellings}, key=lambda row: (len(row.ids), row.ids))
    found: dict[Row, float] = {}
    for start in range(0, len(flat), 64):
        batch = flat[start : start + 64]
        logits, labels = _answer_logits(model, batch)
        right = logits.gather(1, labels[:, None])[:, 0]
        others = logits.scatter(1, labels[:, None], -math.inf).max(dim=1).values
        lengths = [sum(label != IGNORED for label in row.labels) for row in batch]
        worst = [float(part.min()) for part in (right - others).split(lengths)]
        found.update(zip(batch, worst, strict=True))
    model.train()
    return found


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
