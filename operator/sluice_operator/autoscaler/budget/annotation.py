"""The text of the accelerator budget, as the annotation of a namespace has it: `nvidia.com/gpu=8,amd.com/gpu=4`."""

import re
from typing import Final

_ENTRY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)=([0-9]{1,6})")


class InvalidBudget(ValueError):
    """The text is not a budget. The message names the part that is wrong, and the valid form."""


def parse_budget(text: str) -> dict[str, int]:
    """Return the accelerators per extended resource. Raises InvalidBudget.

    A resource that the text does not name has no budget; 0 grants none.
    """
    limits: dict[str, int] = {}
    for part in text.split(","):
        entry = _ENTRY.fullmatch(part.strip())
        if entry is None:
            raise InvalidBudget(f"{part.strip()[:80]!r} is not RESOURCE=COUNT, such as nvidia.com/gpu=8")
        resource, count = entry[1], int(entry[4])
        if resource in limits:
            raise InvalidBudget(f"{resource} is named twice")
        limits[resource] = count
    return limits
