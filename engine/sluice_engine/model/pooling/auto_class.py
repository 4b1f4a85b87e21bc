"""transformers' class of a folder's model for a task of whole texts, and what its files may lack."""

from pathlib import Path
from typing import Any, Final

import transformers
from transformers import AutoModel, AutoModelForSequenceClassification

from sluice_engine.errors import ModelInvalid
from sluice_engine.model.pooling.task import Task

POOLER: Final = "pooler."  # in the names of tensors from pre-training, which embeddings do not use and files often lack


def auto_class(folder: Path, task: Task, config: transformers.PretrainedConfig) -> Any:
    """Return the Auto class that loads the model to embed or to score. Raises ModelInvalid where there is none."""
    auto = AutoModelForSequenceClassification if task == "score" else AutoModel
    if type(config) not in auto._model_mapping:
        name = repr(config.model_type)
        raise ModelInvalid(f"Model type {name} has no class in transformers to {task} with ({auto.__name__}).")
    if task == "score" and config.num_labels != 1:
        raise ModelInvalid(
            f"The model in {folder} sorts texts into {config.num_labels} classes; a cross-encoder gives one score "
            "(num_labels 1 in config.json), and that is what this engine serves."
        )
    return auto


def may_lack(name: str, task: Task) -> bool:
    """True for a tensor that the files need not have."""
    return task == "embed" and POOLER in name
