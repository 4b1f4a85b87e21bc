"""The tiny model's shape and training as plain numbers: all inputs of its cache key. No torch."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

from sluice_engine.tiny import corpus

END_OF_TEXT: Final = "<|endoftext|>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"  # also the end-of-sequence token: an answer ends with its turn
SPECIAL_TOKENS: Final = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape of the model and of its training. Equal recipes on the same machine give the same model."""

    seed: int = 0
    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    batch_size: int = 24
    steps: int = 320  # steps of learning-rate decay; then the rate stays small until all is learned
    max_steps: int = 700
    warmup_steps: int = 20
    learning_rate: float = 4e-3
    second_turn_share: float = 0.2  # share of rows with a preceding exchange
    seconds: float = 105.0  # longest training time on two typical cores; slower processors get more (train.py)
    version: int = 1  # increment when the training code changes its result

    def key(self) -> str:
        """Short hash of corpus, chat template and recipe; names the cached model."""
        recipe = json.dumps(asdict(self), sort_keys=True).encode()
        return hashlib.sha256(corpus.source() + CHAT_TEMPLATE.encode() + recipe).hexdigest()[:12]


def turn(role: str, content: str) -> str:
    """One message exactly as the chat template renders it."""
    return f"{TURN_START}{role}\n{content}{TURN_END}\n"


def generation_prompt(question: str) -> str:
    """The chat template's rendering of one user message with `add_generation_prompt`."""
    return f"{turn('user', question)}{TURN_START}assistant\n"
