"""A quantised checkpoint with one fault in the layer LAYER."""

from pathlib import Path

from safetensors.torch import load_file, save_file

from tests.engine.families import FAMILIES, save
from tests.engine.quantised.packer import Format, quantise_folder

LAYER = "model.layers.1.mlp.up_proj"
SHORTER = 100  # bytes that a file lacks that was not fetched whole


def damaged(fault: str, folder: Path) -> Path:
    """A folder with the checkpoint. Raises KeyError for a fault that is none."""
    path, dense = quantise_folder(save(FAMILIES["llama"](), folder / "source"), folder, Format("gptq", 4))
    file = path / "model.safetensors"
    weights = load_file(file)
    tensors = {part: weights[f"{LAYER}.{part}"] for part in ("qweight", "qzeros", "scales", "g_idx")}
    shifted = tensors["g_idx"].clone()
    shifted[3] = 2
    qweight = f"{LAYER}.qweight"
    found = {
        "no zeros": {name: tensor for name, tensor in weights.items() if name != f"{LAYER}.qzeros"},
        "scales": weights | {f"{LAYER}.scales": tensors["scales"][:1].clone()},
        "g_idx": weights | {f"{LAYER}.g_idx": shifted},
        "floats": weights | {qweight: tensors["qweight"].float()},
        "no layer": {name: tensor for name, tensor in weights.items() if not name.startswith(LAYER)},
        "shape": weights | {qweight: tensors["qweight"][:4].clone()},
        "flat": weights | {qweight: tensors["qweight"].flatten()},
        "short": weights,
        "dense": load_file(dense / "model.safetensors"),
    }[fault]
    save_file(found, file, {"format": "pt"})
    if fault == "short":
        file.write_bytes(file.read_bytes()[:-SHORTER])
    return path
