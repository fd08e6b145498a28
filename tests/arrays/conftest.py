"""Stand-ins for torch and CuPy with exactly the attributes tilekit may touch, so that dispatch is tested anywhere."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilekit.arrays import library, view


class FakeTorchType:
    """A ``torch.dtype``: hashable by identity, and printed with its module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


FakeTorchType.__module__ = "torch"


class FakeTensor:
    """A strided ``torch.Tensor``; ``log`` keeps what was allocated and where."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: FakeTorchType,
        ordinal: int = 0,
        requires_grad: bool = False,
        negative: bool = False,
        device: str = "cuda",
    ) -> None:
        self._address, self.shape, self._strides, self.dtype = address, shape, strides, dtype
        self._ordinal, self.requires_grad, self._negative = ordinal, requires_grad, negative
        self.is_cuda, self.is_cpu = device == "cuda", device == "cpu"
        self.device = f"{device}:{ordinal}" if self.is_cuda else device
        self.layout = "torch.strided"

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def get_device(self) -> int:
        return self._ordinal

    def is_neg(self) -> bool:
        return self._negative


FakeTensor.__module__, FakeTensor.__name__ = "torch", "Tensor"


def fake_empty_strided(
    shape: tuple[int, ...], strides: tuple[int, ...], *, dtype: FakeTorchType, device: str
) -> FakeTensor:
    """``torch.empty_strided``: always the same memory."""
    return FakeTensor(0x9000, shape, strides, dtype, int(device.removeprefix("cuda:")))


class FakeCupyArray:
    """A ``cupy.ndarray`` on one device."""

    def __init__(self, address: int, like: np.ndarray[Any, Any], ordinal: int = 0) -> None:
        self.data = SimpleNamespace(ptr=address, device_id=ordinal)
        self.shape, self.strides, self.dtype, self.itemsize = like.shape, like.strides, like.dtype, like.itemsize


FakeCupyArray.__module__, FakeCupyArray.__name__ = "cupy", "ndarray"


class Context:
    """A context manager that notes being entered."""

    def __init__(self, log: list[Any], entry: Any) -> None:
        self.log, self.entry = log, entry

    def __enter__(self) -> None:
        self.log.append(self.entry)

    def __exit__(self, *_exception: object) -> None:
        pass


def forget_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a type is viewed is decided once, and depends on its library: another test's is another one."""
    known = {kind: adapter for kind, adapter in view._ADAPTERS.items() if not kind.__name__.startswith("Fake")}
    monkeypatch.setattr(view, "_ADAPTERS", known)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module named torch whose current stream on device i is 0x100 + i."""
    module: Any = ModuleType("torch")
    module.Tensor, module.empty_strided = FakeTensor, fake_empty_strided
    for name in ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int64"):
        setattr(module, name, FakeTorchType(name))
    module.grad_enabled, module.entered = True, []
    module.is_grad_enabled = lambda: module.grad_enabled
    module.autograd = SimpleNamespace(forward_ad=SimpleNamespace(_current_level=-1))  # no dual number anywhere
    module._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 0x100 + ordinal)
    module.cuda = SimpleNamespace(
        ExternalStream=lambda handle, device: (handle, device),
        stream=lambda stream: Context(module.entered, stream),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    forget_types(monkeypatch)
    library._torch_raw_stream.cache_clear()
    library._torch_types.cache_clear()
    yield module
    library._torch_raw_stream.cache_clear()
    library._torch_types.cache_clear()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module named cupy whose current stream on device i is 0x200 + i, without 8-bit floats, as CuPy is."""
    module: Any = ModuleType("cupy")
    module.ndarray, module.entered = FakeCupyArray, []

    def empty(shape: tuple[int, ...], dtype: Any) -> FakeCupyArray:
        kind = np.dtype(dtype)
        if kind.itemsize == 1 and kind.type.__module__ != "numpy":
            raise TypeError("Unsupported dtype")
        return FakeCupyArray(0xA000, np.empty(shape, dtype))

    module.empty = empty
    module.cuda = SimpleNamespace(
        Device=lambda ordinal: Context(module.entered, ("device", ordinal)),
        ExternalStream=lambda handle: Context(module.entered, ("stream", handle)),
        get_current_stream=lambda ordinal=0: SimpleNamespace(ptr=0x200 + ordinal),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    forget_types(monkeypatch)
    return module
