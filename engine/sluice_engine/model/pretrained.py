"""transformers' own loading, as this engine always asks for it: safetensors, local files, no code from the folder."""

from pathlib import Path
from typing import Any

import torch
import transformers

from sluice_engine.model import attention
from sluice_engine.model.errors import ModelInvalid, first_line


def from_folder(auto: Any, folder: Path, config: transformers.PretrainedConfig, dtype: torch.dtype, **more: Any) -> Any:
    """What `auto`, one of transformers' Auto classes, makes of the folder, with our attention.

    `more` goes to its `from_pretrained`, and says whether a module comes back or a module and a report. Raises
    ModelInvalid.
    """
    try:
        return auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation=attention.NAME,
            **more,
        )
    except Exception as error:  # transformers raises what it likes: whatever it is, the folder cannot be served
        raise ModelInvalid(f"The model in {folder} cannot be loaded: {first_line(error)}") from error
