"""The configuration of the block copy. One for all architectures: it is bound by memory or by the link."""

from typing import Final

CHUNK: Final = 2048  # int64 words that a program copies: 16 KiB, one 16-byte load per thread and round
WARPS: Final = 8
