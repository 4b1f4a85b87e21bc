"""The quantised layers of a GPTQ or AWQ checkpoint in the layout of the weight-only products, one at a time.

The module is loaded dequantised, because it is what the fused decoder is compared with; the decoder then takes its layers
from here, and the dense weights are freed.
"""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors import safe_open

from sluice.models.files import loaded_names
from sluice.models.quantisation import Quantisation
from sluice_engine.backend.cuda.ops.products import QuantisedWeight
from sluice_engine.model.quantised.checkpoint import PARTS, WORDS, unpack_layer
from sluice_kernels import w4a16, w8a16
from sluice_kernels.repack import repack

_CAN_USE: Final = {4: w4a16.can_use, 8: w8a16.can_use}
_log = logging.getLogger(__name__)


class QuantisedLayers:
    """The weights of the linear layers of `module`, read from the folder's files. Use it as a context."""

    def __init__(self, folder: Path, quantisation: Quantisation, module: torch.nn.Module) -> None:
        self._folder, self._quantisation = folder, quantisation
        self._names = {id(child): name for name, child in module.named_modules()}
        self._stack = ExitStack()
        self._where: dict[str, Any] = {}
        self.packed = 0  # layers so far
        self._refused: set[str] = set()  # reasons that are logged

    def __enter__(self) -> Self:
        """Open the files."""
        for name in loaded_names(path.name for path in self._folder.iterdir()):
            file = self._stack.enter_context(safe_open(self._folder / name, framework="pt"))
            self._where |= dict.fromkeys(file.keys(), file)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._stack.close()

    def __call__(self, linear: torch.nn.Linear) -> QuantisedWeight | None:
        """The weight of a layer on its device; None if the layer is dense, or a kernel does not support it: the log says
        why, once per reason.
        """
        name, bits = self._names.get(id(linear), ""), self._quantisation.bits
        if f"{name}.{WORDS}" not in self._where:
            return None
        reason = _CAN_USE[bits](linear.in_features, linear.weight.dtype)
        if reason is None:
            device = linear.weight.device
            stored = {part: f"{name}.{part}" for part in PARTS if f"{name}.{part}" in self._where}
            tensors = {part: self._where[place].get_tensor(place) for part, place in stored.items()}
            found = unpack_layer(f"{name} in {self._folder}", tensors, self._quantisation)
            scales, zeros = found.scales.to(device), found.zeros.to(device)
            try:
                weights = repack(found.values.to(device), scales, zeros, bits, found.group_of.to(device))
            except ValueError as error:  # groups that are no multiple of the kernel's
                reason = str(error)
            else:
                self.packed += 1
                return QuantisedWeight((weights,), bits)
        if reason not in self._refused:
            self._refused.add(reason)
            _log.info("%s is computed from dequantised weights: %s", name, reason)
        return None
