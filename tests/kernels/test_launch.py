"""Launches of a compiled kernel: Triton's search runs once for what it specialises on."""

from typing import Any

import pytest
import torch

from sluice_kernels import launch


class Compiled:
    """A compiled kernel that notes its launches."""

    def __init__(self, log: list[tuple[tuple[int, ...], tuple[object, ...]]]) -> None:
        self._log = log

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *values: self._log.append((grid, values))


class Kernel:
    """A kernel with the parameters x, count and block."""

    arg_names = ("x", "count", "block")

    def __init__(self) -> None:
        self.searches: list[object] = []
        self.launches: list[tuple[tuple[int, ...], tuple[object, ...]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def search(*values: object, **constants: object) -> Compiled:
            self.searches.append((grid, values, constants))
            return Compiled(self.launches)

        return search


class OnDevice(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


def on_device(count: int, dtype: torch.dtype = torch.float32, offset: int = 0) -> torch.Tensor:
    return torch.zeros(count + offset, dtype=dtype)[offset:].as_subclass(OnDevice)


def test_the_second_launch_goes_to_the_compiled_kernel_with_all_values_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernel, x = Kernel(), on_device(64)
    launch.launch(kernel, (3,), (x, 32), block=16, num_warps=4)
    assert kernel.searches == [((3,), (x, 32), {"block": 16, "num_warps": 4})]
    y = on_device(64)
    launch.launch(kernel, (5, 2), (y, 64), block=16, num_warps=4)
    assert len(kernel.searches) == 1
    ((grid, values),) = kernel.launches
    assert grid == (5, 2, 1)
    assert values[0] is y and values[1:] == (64, 16)


@pytest.mark.parametrize(
    ("arguments", "constants"),
    [
        ((on_device(64, torch.int32), 32), {"block": 16, "num_warps": 4}),
        ((on_device(64, offset=1), 32), {"block": 16, "num_warps": 4}),
        ((on_device(64), 33), {"block": 16, "num_warps": 4}),
        ((on_device(64), 1), {"block": 16, "num_warps": 4}),
        ((on_device(64), 1 << 40), {"block": 16, "num_warps": 4}),
        ((on_device(64), None), {"block": 16, "num_warps": 4}),
        ((on_device(64), 32), {"block": 32, "num_warps": 4}),
        ((on_device(64), 32), {"block": 16, "num_warps": 8}),
    ],
)
def test_what_triton_specialises_on_is_searched_anew(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], constants: dict[str, int]
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernel = Kernel()
    launch.launch(kernel, (3,), (on_device(64), 32), block=16, num_warps=4)
    launch.launch(kernel, (3,), arguments, **constants)
    assert len(kernel.searches) == 2 and kernel.launches == []


def test_another_device_has_its_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    for device in (0, 1):
        monkeypatch.setattr(torch.cuda, "current_device", lambda device=device: device)
        launch.launch(kernel, (3,), (on_device(64), 32), block=16, num_warps=4)
    assert len(kernel.searches) == 2
