"""A byte-level BPE tokenizer trained on the corpus, saved in the two files that tokenizers and transformers read."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from sluice_engine.tiny import corpus
from sluice_engine.tiny.recipe import (
    CHAT_TEMPLATE,
    END_OF_TEXT,
    SPECIAL_TOKENS,
    TURN_END,
    TURN_START,
    Recipe,
    generation_prompt,
)


def make(recipe: Recipe) -> Tokenizer:
    """A tokenizer of at most `recipe.vocab_size` entries. Special tokens come first, and none is added to a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [
        text
        for pair in corpus.load()
        for question in corpus.variants(pair.question)
        for text in (generation_prompt(question), pair.answer)
    ]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer: Tokenizer, directory: Path, recipe: Recipe) -> None:
    """Write `tokenizer.json`, and `tokenizer_config.json` with the chat template."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": recipe.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "additional_special_tokens": [TURN_START, TURN_END],
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
