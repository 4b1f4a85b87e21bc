"""The configuration of the sampling kernels: one program per row, or per row and tile for the edits."""

from typing import Final

EDIT_BLOCK: Final = 2048
BLOCK: Final = 1024  # tokens per tile of the logprobs
WARPS: Final = 8
DRAW_BLOCK: Final = 2048  # tokens per tile of a draw; two tiles are on their way while one is summed
DRAW_WARPS: Final = 8
CANDIDATES: Final = 2048  # tokens of the tile that top-k and top-p draw from
LIKELIEST: Final = 1024  # how many of them are certain: the threshold admits at least as many
MOST_VOCABULARY: Final = 1 << 20
MOST_LOGPROBS: Final = 32
