"""Tiny models that embed or score, and what plain transformers gives for the same texts in a padded batch."""

import json
import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    Gemma3TextConfig,
    ModernBertConfig,
    PreTrainedConfig,
    Qwen3Config,
    RobertaConfig,
    XLMRobertaConfig,
)

from tests.engine.families import ALTERNATING, SMALL

ENCODER = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
SCORE = {"num_labels": 1}

CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "albert": lambda: AlbertConfig(**ENCODER, embedding_size=32),
    "bert": lambda: BertConfig(**ENCODER),
    "bert-score": lambda: BertConfig(**ENCODER, **SCORE),
    "distilbert": lambda: DistilBertConfig(
        vocab_size=128, dim=64, hidden_dim=96, n_layers=2, n_heads=4, max_position_embeddings=256, initializer_range=0.2
    ),
    "electra-score": lambda: ElectraConfig(**ENCODER, **SCORE, embedding_size=32),
    "gemma3": lambda: Gemma3TextConfig(**SMALL | ALTERNATING, head_dim=32, use_bidirectional_attention=True),
    "modernbert": lambda: ModernBertConfig(**ENCODER, local_attention=16),
    "modernbert-score": lambda: ModernBertConfig(**ENCODER, **SCORE, local_attention=16, classifier_pooling="mean"),
    "qwen3": lambda: Qwen3Config(**SMALL, head_dim=32),
    "qwen3-score": lambda: Qwen3Config(**SMALL | SCORE, head_dim=32),
    "roberta": lambda: RobertaConfig(**ENCODER | {"pad_token_id": 1}),
    "xlm-roberta-score": lambda: XLMRobertaConfig(**ENCODER | SCORE | {"pad_token_id": 1}),
}


def save_texts_model(name: str, folder: Path, *, pooling: str | None = None, normalize: bool = False) -> Path:
    """A random but seeded model, with norms and biases drawn too; `pooling` is told as sentence-transformers does."""
    torch.manual_seed(4)
    model = auto(name).from_config(CONFIGS[name]())
    for key, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=0.0 if "bias" in key else 0.5, std=0.2)
    model.save_pretrained(folder)
    if pooling is not None:
        write_sentence_files(folder, {f"pooling_mode_{pooling}": True}, normalize=normalize)
    return folder


def write_sentence_files(
    folder: Path, pooling: dict[str, object], *, normalize: bool = False, extra: Sequence[str] = ()
) -> None:
    """`modules.json` and the pooling's config, as sentence-transformers writes them."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else []), *extra]
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds) if index)]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64} | pooling))


def auto(name: str) -> type[AutoModel] | type[AutoModelForSequenceClassification]:
    """The class of transformers that the model is loaded with."""
    return AutoModelForSequenceClassification if name.endswith("-score") else AutoModel


def texts(lengths: Sequence[int], seed: int = 5) -> list[list[int]]:
    """Random token ids, none of them special."""
    dice = random.Random(seed)
    return [[dice.randrange(3, 128) for _ in range(length)] for length in lengths]


@dataclass(frozen=True)
class Reference:
    """Plain transformers, one padded batch, its own attention."""

    name: str
    folder: Path

    @torch.inference_mode()
    def rows(
        self, given: list[list[int]], pooling: str, *, normalize: bool, types: list[list[int]] | None = None
    ) -> torch.Tensor:
        """[N, D]: pooled hidden states, or the logits of a cross-encoder as probabilities."""
        model = auto(self.name).from_pretrained(self.folder, dtype=torch.float32, attn_implementation="eager").eval()
        longest = max(map(len, given))
        pad = AutoConfig.from_pretrained(self.folder).pad_token_id
        ids = torch.tensor([text + [pad] * (longest - len(text)) for text in given])
        mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in given])
        more = {}
        if types is not None:
            more["token_type_ids"] = torch.tensor([kind + [0] * (longest - len(kind)) for kind in types])
        output = model(input_ids=ids, attention_mask=mask, **more)
        if self.name.endswith("-score"):
            return torch.sigmoid(output.logits)
        hidden = output.last_hidden_state
        if pooling == "mean":
            rows = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        else:
            rows = torch.stack(
                [states[0 if pooling == "cls" else len(text) - 1] for states, text in zip(hidden, given, strict=True)]
            )
        return torch.nn.functional.normalize(rows, dim=-1) if normalize else rows


def save_tokenizer(folder: Path) -> Path:
    """A word-piece tokenizer of single letters with BERT's templates, for models of 128 tokens."""
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in string.ascii_lowercase)]
    tokenizer = Tokenizer(WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
