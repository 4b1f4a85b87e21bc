"""Where the tensors of any architecture belong whose files name, merge or cut them otherwise than transformers' module.

transformers' own renamings and conversions are applied, one converted tensor after the other and on the device.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

Tensors = Mapping[str, torch.Tensor]
_DEVICE: Final = "meta"


@dataclass(frozen=True, slots=True)
class Conversion:
    """Tensors of the files, as (transformers' pattern, name), that make one or more of the module's; `target` is the first."""

    target: str
    converter: WeightConverter
    sources: tuple[tuple[str, str], ...]

    def converted(self, module: Any, tensors: Tensors) -> dict[str, torch.Tensor]:
        """The module's tensors by name, from those of the files by name. Their memory may be that of the files' tensors."""
        converter = copy.deepcopy(self.converter)
        for pattern, name in self.sources:
            converter.add_tensor(self.target, name, pattern, tensors[name])
        made = converter.convert(self.target, model=module, config=module.config)
        return {name: each[0] if isinstance(each, list) else each for name, each in made.items()}

    def shapes(self, module: Any, stored: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Of the module's tensors, from the shapes of the files'."""
        given = {name: torch.empty(stored[name], device=_DEVICE) for _, name in self.sources}
        return {name: tuple(each.shape) for name, each in self.converted(module, given).items()}


@dataclass(frozen=True, slots=True)
class Places:
    """`names`: the module's name of each tensor that is taken as it is."""

    names: dict[str, str]
    conversions: tuple[Conversion, ...]


def places_of(module: Any, stored: Iterable[str]) -> Places:
    """Where the files' tensors belong in a module on the meta device, by transformers' rules."""
    rules = get_model_conversion_mapping(module)
    renamings = [each for each in rules if isinstance(each, WeightRenaming)]
    converters = [each for each in rules if isinstance(each, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    expected, prefix = module.state_dict(), module.base_model_prefix
    names: dict[str, str] = {}
    gathered: dict[str, list[tuple[str, str]]] = {}
    for name in sorted(stored, key=dot_natural_key):  # experts in the order of their numbers
        place, pattern = rename_source_key(name, renamings, converters, prefix, expected)
        if place not in expected and name in expected:
            place, pattern = name, None
        if pattern is None or place not in expected:
            names[name] = place
        else:
            gathered.setdefault(place, []).append((pattern, name))
    return Places(names, tuple(_conversions(gathered, by_pattern)))


def _conversions(
    gathered: Mapping[str, list[tuple[str, str]]], by_pattern: Mapping[str, WeightConverter]
) -> Iterator[Conversion]:
    for target, sources in gathered.items():
        yield Conversion(target, by_pattern[sources[0][0]], tuple(sources))
