"""Sizes, ages and counts as people read them."""

from typing import Final

_SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_AGES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def size_words(size: float) -> str:
    """Bytes in binary units: "260.0 MiB"."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} B"


def count_words(count: int) -> str:
    """A count in decimal units: "134.5 M"."""
    for unit, name in _COUNTS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return str(count)


def age_words(seconds: float) -> str:
    """How long ago: "3 min ago"."""
    for unit, name in _AGES:
        if seconds >= unit:
            return f"{int(seconds // unit)} {name} ago"
    return "just now"
