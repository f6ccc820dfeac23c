"""Peak memory of a computation: reported by the allocator on CUDA, tracked on a CPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from relquery.model import footprint


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Peak bytes of tensors that `run` holds at once, in addition to those before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before: int = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        peak: int = torch.cuda.max_memory_allocated(device)
        return peak - before
    tracker = _Tracker()
    with tracker:
        run()
    return tracker.peak


def usable_bytes(device: torch.device) -> int:
    """Bytes that a program can safely use: 90% of the free memory on CUDA, half of it on a CPU."""
    if device.type != "cuda":
        return footprint.usable_bytes()
    free: int = torch.cuda.mem_get_info(device)[0]
    return 9 * free // 10


def all_bytes(device: torch.device) -> int:
    """Total bytes of the device's memory."""
    if device.type != "cuda":
        return footprint.host_bytes()
    total: int = torch.cuda.mem_get_info(device)[1]
    return total


class _Tracker(TorchDispatchMode):
    """A count of the storages that operations create, until they are freed.

    Memory that a kernel allocates and frees internally is not counted; on a CPU this is a few rows
    of buffer per thread.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, weakref.finalize[Any, Any]] = {}
        self._now = 0
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count its results except views of its inputs."""
        given: set[int] = set()
        tree_map_only(Tensor, lambda each: self._note(each, given), (args, kwargs))
        result = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, lambda each: self._take_in(each, given), result)
        return result

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        for storage in self._live.values():
            storage.detach()

    @staticmethod
    def _note(tensor: Tensor, given: set[int]) -> None:
        given.add(_address(tensor))

    def _take_in(self, tensor: Tensor, given: set[int]) -> None:
        storage = tensor.untyped_storage()
        address, size = _address(tensor), storage.nbytes()
        if address not in self._live and address not in given:
            self._live[address] = weakref.finalize(storage, self._let_go, address, size)
            self._now += size
            self.peak = max(self.peak, self._now)

    def _let_go(self, address: int, size: int) -> None:
        self._live.pop(address, None)
        self._now -= size


def _address(tensor: Tensor) -> int:
    """Address of the storage, which views share."""
    address: int = tensor.untyped_storage()._cdata
    return address
