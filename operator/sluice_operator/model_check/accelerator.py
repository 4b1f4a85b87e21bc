"""The memory of an accelerator, as the spec's node selector fixes it.

The labels are those of NVIDIA's GPU feature discovery: RESOURCE.memory in MiB, also of MIG devices, and the product's name
with its nominal memory (NVIDIA-A100-SXM4-80GB). The nodes themselves are not listed: one with more memory may yet join, and
the operator has no permission in the whole cluster where it manages one namespace.
"""

import re
from collections.abc import Mapping
from typing import Final

MIB: Final = 1 << 20
GPU: Final = "nvidia.com/gpu"
PRODUCT: Final = "nvidia.com/gpu.product"
_NOMINAL: Final = re.compile(r"-(\d{1,4})GB\b", re.ASCII)


def selected_memory(resource: str, node_selector: Mapping[str, str]) -> int | None:
    """Bytes of one accelerator on the nodes that the selector allows, at most; None if it does not tell.

    A nominal GB counts as a GiB, which no device exceeds.
    """
    label = node_selector.get(f"{resource}.memory", "")
    if label.isascii() and label.isdecimal() and int(label):
        return int(label) * MIB
    found = _NOMINAL.search(node_selector.get(PRODUCT, "")) if resource == GPU else None
    return int(found[1]) * 1024 * MIB if found and int(found[1]) else None
