"""The ranks of a model, and their collective operations over torch.distributed: NCCL on GPUs, gloo on the CPU.

All connections are local: the ranks are processes of one container.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol, TypeVar

import torch
from torch import distributed

# A rank may load for this long while the others wait. One that ends is noticed by its process (`core/ranks/leader.py`).
TIMEOUT: Final = timedelta(minutes=30)
_LOOPBACK: Final = "127.0.0.1"
T = TypeVar("T")


class RankFailed(RuntimeError):
    """An operation over all ranks failed, so their states differ: the engine must end."""


class Group(Protocol):
    """The ranks that share a model. All of them call the same operations in the same order."""

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of the ranks' tensors, in place. Raises RankFailed."""

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """[N, M] of each rank → [size, N, M]. Raises RankFailed."""

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Overwrite the tensor by that of rank 0. Raises RankFailed."""

    def least(self, number: int) -> int:
        """The smallest of the ranks' numbers. Raises RankFailed."""


class TorchGroup:
    """See `Group`. `store` is where the ranks find each other."""

    def __init__(self, store: distributed.Store, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self._device = rank, size, device
        self._group = _nccl(store, rank, size) if device.type == "cuda" else _gloo(store, rank, size)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Group`."""
        summed = tensor.contiguous()
        self._done("sum", lambda: self._group.allreduce([summed]))
        return summed

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Group`."""
        rows, width = tensor.shape
        gathered = tensor.new_empty(self.size * rows, width)
        self._done("gathering", lambda: self._group._allgather_base(gathered, tensor.contiguous()))
        return gathered.view(self.size, rows, width)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """See `Group`."""
        self._done("broadcast", lambda: self._group.broadcast(tensor, 0))

    def least(self, number: int) -> int:
        """See `Group`."""
        # The largest of the negative numbers, because a sum is the default of allreduce and MAX is in every backend.
        tensor = torch.tensor([-number], dtype=torch.int64, device=self._device)
        self._done("comparison", lambda: self._group.allreduce([tensor], op=distributed.ReduceOp.MAX))
        return -int(tensor.item())

    def _done(self, name: str, operation: Callable[[], distributed.Work]) -> None:
        """Enqueue the operation on CUDA, execute it elsewhere."""
        try:
            operation().wait()
        except RuntimeError as error:
            raise RankFailed(f"the {name} over the {self.size} ranks failed on rank {self.rank}: {error}") from error


def _gloo(store: distributed.Store, rank: int, size: int) -> distributed.ProcessGroup:
    options = distributed.ProcessGroupGloo._Options()
    options._devices = [distributed.ProcessGroupGloo.create_device(hostname=_LOOPBACK)]
    options._timeout, options._threads = TIMEOUT, 1
    return distributed.ProcessGroupGloo(store, rank, size, options)


def _nccl(store: distributed.Store, rank: int, size: int) -> distributed.ProcessGroup:
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = TIMEOUT
    return distributed.ProcessGroupNCCL(store, rank, size, options)
