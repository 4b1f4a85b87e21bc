"""What a memory of the law weighs."""

import sys
from dataclasses import fields, is_dataclass
from typing import Any


def size_of(value: Any, counted: set[int] | None = None) -> int:
    """Bytes of a value and of everything it holds; an object that is referred to twice, such as a pod's name, is one."""
    counted = set() if counted is None else counted
    if id(value) in counted:
        return 0
    counted.add(id(value))
    if is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    else:
        parts = list(value) if isinstance(value, tuple) else []
    return sys.getsizeof(value) + sum(size_of(part, counted) for part in parts)
