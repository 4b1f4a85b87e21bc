"""Determines a model folder's task (generate, embed or score) and its pooling.

An embedding model's own files have precedence (`modules.json` and the pooling's `config.json`, written by
sentence-transformers), then the architecture that the config names. Options override both.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import transformers
from transformers import AutoModelForCausalLM

from sluice_engine.errors import InvalidOption, ModelInvalid

Task = Literal["generate", "embed", "score"]
Pooling = Literal["mean", "cls", "last"]

_POOLING_FLAGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_POOLING_NAMES: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last", "last": "last"}
_KNOWN_MODULES = {"Transformer", "Pooling", "Normalize"}
# Names of the score's activation function in different versions of sentence-transformers.
_ACTIVATION_KEYS = ("sbert_ce_default_activation_function", "activation_fn")


@dataclass(frozen=True, slots=True)
class SentenceFiles:
    """The settings that sentence-transformers saved with a model."""

    pooling: Pooling
    normalize: bool
    max_tokens: int | None


def pick_task(asked: str, folder: Path, config: transformers.PretrainedConfig) -> Task:
    """The task for "auto" or a name. Raises InvalidOption for an unknown name."""
    if asked != "auto":
        if asked not in get_args(Task):
            raise InvalidOption(f"--task {asked} is not known; one of auto, {', '.join(get_args(Task))}.")
        return cast(Task, asked)
    names = tuple(getattr(config, "architectures", None) or ())
    if any(name.endswith("ForSequenceClassification") for name in names):
        return "score"
    if (folder / "modules.json").is_file():
        return "embed"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return "generate"
    if any(name.endswith(("Model", "ForMaskedLM")) for name in names):
        return "embed"
    return "generate" if type(config) in AutoModelForCausalLM._model_mapping else "embed"


def pick_pooling(asked: str, files: SentenceFiles | None, *, causal: bool) -> Pooling:
    """The pooling for "auto" or a name: the folder's own, else the last token for causal attention (only it attends to
    all others), else the mean. Raises InvalidOption for an unknown name.
    """
    if asked != "auto":
        if asked not in get_args(Pooling):
            raise InvalidOption(f"--pooling {asked} is not known; one of auto, {', '.join(get_args(Pooling))}.")
        return cast(Pooling, asked)
    if files is not None:
        return files.pooling
    return "last" if causal else "mean"


def read_sentence_files(folder: Path) -> SentenceFiles | None:
    """The settings of `modules.json` and the files that it names; None without it. Raises ModelInvalid for a step that
    is not supported.
    """
    if not (folder / "modules.json").is_file():
        return None
    modules = _read(folder / "modules.json")
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelInvalid(f"{folder / 'modules.json'} is not a list of modules.")
    paths = {str(module.get("type", "")).rpartition(".")[2]: str(module.get("path", "")) for module in modules}
    strange = sorted(paths.keys() - _KNOWN_MODULES)
    if strange:
        raise ModelInvalid(
            f"The embedding model in {folder} has the step {', '.join(strange)} (modules.json), which this engine does "
            f"not compute; it computes {', '.join(sorted(_KNOWN_MODULES))}."
        )
    if paths.get("Transformer"):
        raise ModelInvalid(
            f"The embedding model in {folder} keeps its transformer in the folder {paths['Transformer']}; move its "
            "files to the top, as newer versions of sentence-transformers save them."
        )
    if "Pooling" not in paths:
        raise ModelInvalid(f"{folder / 'modules.json'} names no pooling, so there is not one vector per text.")
    return SentenceFiles(_pooling(folder / paths["Pooling"]), "Normalize" in paths, _max_tokens(folder))


def shows_probability(config: transformers.PretrainedConfig) -> bool:
    """True if a cross-encoder's score is the sigmoid of its logit, which is the default; false if its config names the
    identity.

    Raises ModelInvalid for another function.
    """
    nested = getattr(config, "sentence_transformers", None)
    settings = {**vars(config), **(nested if isinstance(nested, dict) else {})}
    name = next((str(settings[key]) for key in _ACTIVATION_KEYS if settings.get(key)), "Sigmoid")
    function = name.rpartition(".")[2]
    if function not in ("Sigmoid", "Identity"):
        raise ModelInvalid(f"The config's {name} for scores is not computed here; Sigmoid and Identity are.")
    return function == "Sigmoid"


def _pooling(folder: Path) -> Pooling:
    given = _read(folder / "config.json")
    if not isinstance(given, dict):
        raise ModelInvalid(f"{folder / 'config.json'} is not an object.")
    named = given.get("pooling_mode")
    if named is not None:
        modes = [str(mode) for mode in (named if isinstance(named, list) else [named])]
        found = {_POOLING_NAMES.get(mode) for mode in modes}
    else:
        modes = [key for key, on in given.items() if key.startswith("pooling_mode_") and on]
        found = {_POOLING_FLAGS.get(mode) for mode in modes}
    pooling = next(iter(found), None)
    if len(modes) != 1 or pooling is None:
        raise ModelInvalid(
            f"The pooling in {folder / 'config.json'} is {', '.join(modes) or 'none'}; one of {', '.join(_POOLING_FLAGS)} "
            "is computed."
        )
    return pooling


def _max_tokens(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    given = _read(path) if path.is_file() else {}
    most = given.get("max_seq_length") if isinstance(given, dict) else None
    return most if type(most) is int and most > 0 else None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{path} cannot be read: {error}") from error
