"""Arithmetic of launch sizes. Triton's own functions of these names take tens of microseconds on the host."""


def cdiv(count: int, size: int) -> int:
    """The tiles of `size` that hold `count`: count / size, rounded up."""
    return -(-count // size)


def next_power_of_2(least: int) -> int:
    """The smallest power of two that is not less than `least`; 1 for 0."""
    return 1 << max(0, least - 1).bit_length()
