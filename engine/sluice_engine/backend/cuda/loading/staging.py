"""Copies tensors of a file to a device through two staging buffers: host memory does not grow with the tensors.

While one buffer is copied to the device, the other is filled. A buffer is filled again only after its copy has ended.
"""

from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final

import torch

from sluice_engine.backend.cuda.device_queue import DeviceQueue, Wait

PIECE_BYTES: Final = 64 << 20  # of one buffer: a fraction of a second of a disk, so the progress moves
BUFFERS: Final = 2


class FileEndsEarly(Exception):
    """The file has fewer bytes than the tensor."""


class Staging:
    """Two host buffers of `piece` bytes (a multiple of 8), pinned where a GPU copies from them. `on_bytes` gets the bytes
    of each piece.
    """

    def __init__(self, queue: DeviceQueue, on_bytes: Callable[[int], None], piece: int = PIECE_BYTES) -> None:
        self._queue, self._on_bytes, self._piece = queue, on_bytes, piece
        pinned = torch.cuda.is_available()
        self._buffers = [torch.empty(piece, dtype=torch.uint8, pin_memory=pinned) for _ in range(BUFFERS)]
        self._waits: list[Wait | None] = [None] * BUFFERS
        self._next = 0

    def copy(self, file: BinaryIO, dtype: torch.dtype, target: torch.Tensor) -> None:
        """Enqueue the copy of the next `target.numel()` elements of `dtype` in the file to `target`, which is contiguous
        and may have another dtype. Raises FileEndsEarly.
        """
        flat, done = target.view(-1), 0
        while done < len(flat):
            count = min(len(flat) - done, self._piece // dtype.itemsize)
            index, self._next = self._next, (self._next + 1) % BUFFERS
            if (wait := self._waits[index]) is not None:
                wait()
            raw = self._buffers[index][: count * dtype.itemsize]
            _fill(file, raw)
            self._queue.put(partial(_enqueue_copy, flat[done : done + count], raw.view(dtype)))
            self._waits[index] = self._queue.mark()
            self._on_bytes(len(raw))
            done += count

    def finish(self) -> None:
        """Wait for all copies."""
        for wait in self._waits:
            if wait is not None:
                wait()
        self._waits = [None] * BUFFERS


def _enqueue_copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def _fill(file: BinaryIO, raw: torch.Tensor) -> None:
    view, got = memoryview(raw.numpy()), 0
    while got < len(view):
        read = file.readinto(view[got:])  # type: ignore[attr-defined]
        if not read:
            raise FileEndsEarly
        got += read
