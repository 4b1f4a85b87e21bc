"""What the tiny model is and how it is trained, as plain numbers: everything its cache key depends on. No torch here."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

from sluice_engine.tiny import corpus

END_OF_TEXT: Final = "<|endoftext|>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"  # also the end-of-sequence token: an answer ends where its turn does
SPECIAL_TOKENS: Final = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape of the model and of its training. Two equal recipes on one machine give one model."""

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
    steps: int = 320  # over which the learning rate falls; then it stays small until all is learned
    max_steps: int = 700
    warmup_steps: int = 20
    learning_rate: float = 4e-3
    second_turn_share: float = 0.2  # rows that ask their question after another exchange
    seconds: float = 105.0  # the most it takes on two usual cores; a slower processor has more patience (train.py)
    version: int = 1  # raised when the training code changes its result

    def key(self) -> str:
        """Short hash of corpus, chat template and recipe: names the cached model."""
        recipe = json.dumps(asdict(self), sort_keys=True).encode()
        return hashlib.sha256(corpus.source() + CHAT_TEMPLATE.encode() + recipe).hexdigest()[:12]


def turn(role: str, content: str) -> str:
    """One message exactly as the chat template renders it."""
    return f"{TURN_START}{role}\n{content}{TURN_END}\n"


def generation_prompt(question: str) -> str:
    """What the chat template renders for one user message with `add_generation_prompt`."""
    return f"{turn('user', question)}{TURN_START}assistant\n"
