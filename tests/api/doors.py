"""Every public call, with legal arguments for all of its parameters but the one that a test is about."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import tilekit
from tilekit.calls.matmul import result_of
from tilekit.emulator import Debugger, GcnDevice, Stop
from tilekit.emulator import PtxDevice as Device
from tilekit.emulator.ptx.kernel import Kernel
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.spec import GemvSpec

BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Door:
    """A parameter of a call.

    Attributes
    ----------
    call
        The call's name.
    parameter
        What an odd value is given as.
    open
        Makes the call with values for some parameters.
    also
        Other names by which an error may speak of it.
    """

    call: str
    parameter: str
    open: Callable[[dict[str, Any]], Any]
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.call}({self.parameter})"


def operands() -> dict[str, Any]:
    """A small product."""
    return {"a": np.ones((64, 64), BF16), "b": np.ones((64, 64), BF16).T}


def grouped_operands() -> dict[str, Any]:
    """Two groups of rows."""
    return {"a": np.ones((64, 64), BF16), "b": np.ones((2, 64, 64), BF16), "ends": np.array([16, 64], np.int32)}


def _with(function: Callable[..., Any], legal: Callable[[], dict[str, Any]], values: dict[str, Any]) -> Any:
    return function(**legal() | values)


def of_call(function: Callable[..., Any], legal: Callable[[], dict[str, Any]], label: str) -> Iterator[Door]:
    """A door for each parameter of a function; of ``**`` parameters there is none."""
    also = {"a": ("ends",)} if label == "grouped_matmul" else {"dtype": ("a and b",)}  # tune has one type for both
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield Door(label, name, partial(_with, function, legal), also.get(name, ()))


def of_fields(kind: type, use: Callable[[Any], Any]) -> Iterator[Door]:
    """A door for each field of a dataclass; what takes the value is used as it is meant to be."""
    assert is_dataclass(kind)
    for field in fields(kind):
        also = (field.name[0],) if field.name in ("a_dtype", "b_dtype") else ()
        yield Door(kind.__name__, field.name, partial(_used, kind, use), also)


def _used(kind: type, use: Callable[[Any], Any], values: dict[str, Any]) -> Any:
    return use(kind(**values))


def _built(config: Any, target: str) -> None:
    tilekit.compile(tilekit.MatmulSpec(), target, config)
    str(config)


def _gemv(config: GemvConfig) -> None:
    from tilekit.targets import SM_90A

    config.check(SM_90A, GemvSpec())


def _bind(**arguments: Any) -> Any:
    return tilekit.compile(tilekit.MatmulSpec()).bind(**arguments)


def _set(values: dict[str, Any]) -> None:
    with tilekit.settings.override(**values):
        pass


def _call_plan(values: dict[str, Any]) -> Any:
    return _bind(**operands())(**values)


def doors() -> list[Door]:
    """All of them, but the emulator's."""
    kernel = tilekit.compile(tilekit.MatmulSpec())
    return [
        *of_call(tilekit.matmul, operands, "matmul"),
        *of_call(tilekit.kernel_for, operands, "kernel_for"),
        *of_call(result_of, operands, "result_of"),
        *of_call(tilekit.grouped_matmul, grouped_operands, "grouped_matmul"),
        *of_call(tilekit.compile, lambda: {"spec": tilekit.MatmulSpec()}, "compile"),
        *of_call(tilekit.tune, lambda: {"m": 64, "n": 64, "k": 64}, "tune"),
        *of_call(kernel.bind, operands, "bind"),
        *(Door("bind", name, partial(_with, kernel.bind, operands))
          for name in ("schedule", "check", "exact", "multiprocessors")),
        Door("plan", "stream", _call_plan),
        *of_fields(tilekit.MatmulSpec, tilekit.compile),
        *of_fields(tilekit.ElementwiseSpec, lambda functions: tilekit.compile(tilekit.MatmulSpec(functions=functions))),
        *of_fields(tilekit.MatmulConfig, partial(_built, target="sm_90a")),
        *of_fields(tilekit.BlackwellConfig, partial(_built, target="sm_100a")),
        *of_fields(GemvSpec, str),
        *of_fields(GemvConfig, _gemv),
        *(Door("settings", row.name, _set) for row in tilekit.settings.describe()),
    ]  # fmt: skip


KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 data, .param .u32 count)
{
    .reg .u64 %a;
    .reg .u32 %n;
    ld.param.u64 %a, [data];
    ld.param.u32 %n, [count];
first:
    st.global.u32 [%a], %n;
    ret;
}
"""


def _emulated() -> Any:
    return Device("sm_90a", check="off").load(KERNEL)["copy"]


def _launch() -> dict[str, Any]:
    return {"grid": 1, "block": 32, "args": [np.zeros(1, "u4"), 7]}


def _on_device(method: str, legal: Callable[[], dict[str, Any]], values: dict[str, Any]) -> Any:
    return getattr(Device("sm_90a"), method)(**legal() | values)


def _launched(method: str, more: dict[str, Any], values: dict[str, Any]) -> Any:
    result = getattr(_emulated(), method)(**_launch() | more | values)
    if isinstance(result, Debugger):
        result.close()
    return result


def _encoded(method: str, more: dict[str, Any], values: dict[str, Any]) -> Any:
    device = Device("sm_90a")
    legal = {"tensor": device.buffer(np.zeros((4, 8, 16, 64), "f2"))} | more
    return getattr(device, method)(**legal | values)


def emulator_doors() -> list[Door]:
    """The emulator's public calls."""
    corners = {"lower": (0, 0), "upper": (0, 0), "channels_per_pixel": 8, "pixels_per_column": 8}
    maps: dict[str, dict[str, Any]] = {
        "tensor_map_tiled": {"box": (8, 8, 1, 1)},
        "tensor_map_im2col": corners,
        "tensor_map_im2col_wide": {"lower": 0, "upper": 0, "channels_per_pixel": 64},
    }
    launches: dict[str, dict[str, Any]] = {"launch": {}, "explore": {"tries": 1}, "debug": {}}
    options = ("cluster", "shared_bytes", "cooperative", "prerequisite", "params", "step_budget")
    found = [
        *of_call(Device, dict, "Device"),
        *of_call(GcnDevice, dict, "GcnDevice"),
        Door("Device.load", "text", partial(_on_device, "load", dict), ("PTX",)),
        *(Door("Device.buffer", name, partial(_on_device, "buffer", lambda: {"array": [1, 2]}))
          for name in ("array", "name")),
        Door("Buffer.write", "array", lambda values: Device().buffer(np.zeros(3)).write(**values)),
        Door("Module", "name", lambda values: Device().load(KERNEL)[values["name"]], ("kernel",)),
        *of_fields(Stop, lambda stop: _launched("debug", {}, {"stop": stop})),
    ]  # fmt: skip
    for method, more in maps.items():
        names = [name for name in inspect.signature(getattr(Device, method)).parameters if name != "self"]
        found += [Door(f"Device.{method}", name, partial(_encoded, method, more)) for name in names]
    for method, more in launches.items():
        signature = inspect.signature(getattr(Kernel, method)).parameters.values()
        named = [p.name for p in signature if p.name != "self" and p.kind is not p.VAR_KEYWORD]
        names = [*named, *(options if method != "launch" else ())]
        also = {"args": ("arguments",), "stop": ("line", "label")}
        found += [
            Door(f"Kernel.{method}", name, partial(_launched, method, more), also.get(name, ())) for name in names
        ]
    return found
