"""What a memory of the law weighs."""

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any


def size_of(value: Any) -> int:
    """Bytes of a value and of everything it holds, each object counted as often as it is referred to."""

    def parts(item: Any) -> Iterator[Any]:
        if is_dataclass(item):
            yield from (getattr(item, f.name) for f in fields(item))
        elif isinstance(item, tuple):
            yield from item

    return sys.getsizeof(value) + sum(size_of(part) for part in parts(value))
