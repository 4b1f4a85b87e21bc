"""A process that imports the engine for `LLM` and goes on to use torch and transformers itself:
`python -m tests.engine.guest_program FOLDER`. Prints a line for each thing that `LLM` changed, and nothing else.
"""

import gc
import signal
import sys
import threading
from pathlib import Path

import torch
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from sluice_engine import LLM, SamplingParams

THREADS = 3
OTHERS = sorted(ALL_ATTENTION_FUNCTIONS)  # before the engine adds its own


def logits(model: torch.nn.Module) -> torch.Tensor:
    """A plain model's logits after a text."""
    with torch.inference_mode():
        result: torch.Tensor = model(torch.arange(2, 40).unsqueeze(0)).logits
    return result


def plain(folder: Path) -> torch.nn.Module:
    """transformers' own model of the folder."""
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder).eval()
    return model


def threads_of_a_new_thread() -> int:
    """What a thread that never used torch computes with."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def seen(model: torch.nn.Module) -> dict[str, object]:
    """What belongs to the process, or to this model of it."""
    return {
        "objects frozen for the garbage collector": gc.get_freeze_count(),
        "garbage collector's thresholds": (gc.isenabled(), gc.get_threshold()),
        "torch's threads": (torch.get_num_threads(), threads_of_a_new_thread()),
        "torch's modes": (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.get_default_dtype()),
        "transformers' progress bars": (logging.is_progress_bar_enabled(), are_progress_bars_disabled()),
        "attention functions": [(name, ALL_ATTENTION_FUNCTIONS[name]) for name in OTHERS],
        "handler of Ctrl-C": signal.getsignal(signal.SIGINT),
        "the model's attention": model.config._attn_implementation,
        "the model's modules": [(name, type(module), vars(module).keys()) for name, module in model.named_modules()],
    }


def main(folder: Path) -> None:
    """Look, use an LLM, look again; then once more when it is gone."""
    torch.set_num_threads(THREADS)
    model = plain(folder)
    want, before = logits(model), seen(model)
    llm = LLM(folder, threads=1, kv_size=4 << 20)
    for moment in ("loaded", "used", "gone"):
        if moment == "used":
            llm.generate([[5, 6, 7], [8, 9]], SamplingParams(max_tokens=4, temperature=0.0))
        if moment == "gone":
            del llm
            gc.collect()
        after = seen(model)
        for name, value in before.items():
            if after[name] != value:
                print(f"{moment}: {name} were {value} and are {after[name]}")  # noqa: T201
        for which, other in (("made before", model), ("made after", plain(folder))):
            if not torch.equal(logits(other), want):
                print(f"{moment}: a plain model {which} gives other logits")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
