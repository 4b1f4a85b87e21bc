"""The configuration of the sampling kernels: one program per row, or per row and tile for the edits."""

from typing import Final

EDIT_BLOCK: Final = 2048
BLOCK: Final = 1024  # tokens per tile of a row; a search has 16 sums per token of a tile in registers
WARPS: Final = 8
MOST_VOCABULARY: Final = 1 << 20
MOST_LOGPROBS: Final = 32
