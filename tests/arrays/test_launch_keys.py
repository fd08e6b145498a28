"""Every argument of a call, and all that a kept thing depends on, asks for another one when it changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

import tilekit
from examples.row_factors import PAYLOADS
from tilekit.calls import grouped as groups
from tilekit.calls import matmul as matmuls
from tilekit.drivers.consumer_schedule import Cooperative
from tilekit.errors import ArgumentError
from tilekit.kernels import launch_cache
from tilekit.kernels.grouped import arguments as grouped
from tilekit.kernels.matmul import arguments as products
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.runtime import assembler, ptxas, scratch
from tilekit.runtime import driver as runtime_driver
from tilekit.runtime.cache import Entry, entry_key
from tilekit.runtime.launch import CudaKernel
from tilekit.runtime.scratch import StreamScratch
from tilekit.runtime.toolchain import Tool
from tilekit.targets import SM_90A

BLOCK = 0x10000

Arguments = dict[str, Any]


@pytest.fixture
def bound(torch: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The launches that are prepared, on fake CUDA tensors."""
    prepared: list[Any] = []

    def prepare(*_arguments: Any, **_options: Any) -> Any:
        prepared.append(_arguments)
        return lambda stream: None

    monkeypatch.setattr(MatmulKernel, "cuda", property(lambda _: SimpleNamespace(prepare=prepare)))
    monkeypatch.setattr(MatmulKernel, "resident_clusters", lambda _self, _ordinal: 66)
    for module in (products, grouped):
        monkeypatch.setattr(module, "resolve_target", lambda _a, _target, memory=True: (SM_90A, None))
    for calls in (matmuls, groups):
        monkeypatch.setattr(calls, "_launches", launch_cache.LaunchCache())
    monkeypatch.setattr(matmuls, "tuned_config", lambda *_problem, **_sizes: None)
    monkeypatch.setattr(runtime_driver, "devices", lambda: (SimpleNamespace(name="NVIDIA H200"),) * 2)
    return prepared


@tilekit.epilogue
def doubled(x: Any) -> Any:
    """Twice an element."""
    return x * 2


@tilekit.epilogue
def halved(x: Any) -> Any:
    """Half of one."""
    return x * 0.5


def matmul_pairs(torch: Any) -> dict[str, tuple[Arguments, Arguments]]:
    """For each parameter of `tilekit.matmul`, two calls that differ in it alone."""

    def matrix(block: int, shape: tuple[int, int] = (64, 64), kind: str = "bfloat16", across: bool = False) -> Any:
        strides = (1, shape[0]) if across else (shape[1], 1)
        return torch.Tensor(block * BLOCK, shape, strides, getattr(torch, kind))

    def vector(block: int) -> Any:
        return torch.Tensor(block * BLOCK, (64,), (1,), torch.float32)

    plain = {"a": matrix(1), "b": matrix(2), "out": matrix(9)}
    fp8 = {"a": matrix(1, kind="float8_e4m3fn"), "b": matrix(2, kind="float8_e4m3fn", across=True), "out": matrix(9)}
    values: dict[str, tuple[Arguments, Any, Any]] = {
        "a": (plain, matrix(1), matrix(3)),
        "b": (plain, matrix(2), matrix(2, across=True)),
        "out": (plain, matrix(9), matrix(8)),
        "bias": (plain, vector(4), vector(5)),
        "activation": (plain, "relu", "silu"),
        "scale": (plain, 2.0, 3.0),
        "scale_a": (plain, vector(4), vector(5)),
        "scale_b": (plain, vector(4), vector(5)),
        "residual": (plain, matrix(6), matrix(7)),
        "beta": (plain | {"residual": matrix(6)}, 1.0, 2.0),
        "out_dtype": (plain | {"out": None}, "bf16", "f16"),
        "accumulation": (fp8, "fast", "promoted"),
        "config": (plain, tilekit.MatmulConfig(), tilekit.MatmulConfig(stages=2)),
        "target": (plain, None, "sm_90a"),
        "epilogue": (plain, doubled(), halved()),
        "components": (plain, None, tilekit.OwnComponents(consumers=lambda w: Cooperative())),
        "arrays": (
            plain | {"components": tilekit.OwnComponents(payload=PAYLOADS["staged"])},
            {"factor": torch.Tensor(4 * BLOCK, (1, 64), (64, 1), torch.float32)},
            {"factor": torch.Tensor(5 * BLOCK, (1, 64), (64, 1), torch.float32)},
        ),
    }
    return {name: (rest | {name: one}, rest | {name: other}) for name, (rest, one, other) in values.items()}


def grouped_pairs(torch: Any) -> dict[str, tuple[Arguments, Arguments]]:
    """For each parameter of `tilekit.grouped_matmul`, two calls that differ in it alone."""
    torch.int32 = type(torch.bfloat16)("int32")

    def rows(block: int) -> Any:
        return torch.Tensor(block * BLOCK, (128, 64), (64, 1), torch.bfloat16)

    def groups(block: int) -> Any:
        return torch.Tensor(block * BLOCK, (2, 64, 64), (4096, 64, 1), torch.bfloat16)

    def bounds(block: int) -> Any:
        return torch.Tensor(block * BLOCK, (2,), (1,), torch.int32)

    plain = {"a": rows(1), "b": groups(2), "ends": bounds(3), "out": rows(9)}
    apart = {"a": groups(1), "b": groups(2), "counts": bounds(3), "out": groups(9)}
    torch.float8_e4m3fn = type(torch.bfloat16)("float8_e4m3fn")

    def scales(block: int, *shape: int) -> Any:
        return torch.Tensor(block * BLOCK, shape, (*(1 for _ in shape),), torch.float32)

    def across(block: int) -> Any:
        return torch.Tensor(block * BLOCK, (2, 64, 64), (4096, 1, 64), torch.float8_e4m3fn)

    fp8 = {"a": torch.Tensor(1 * BLOCK, (128, 64), (64, 1), torch.float8_e4m3fn), "b": across(2)}
    scaled = {"ends": bounds(3), "out": rows(9), "scale_a": scales(4, 128, 1), "scale_b": scales(5, 2, 1, 1)}
    values: dict[str, tuple[Arguments, Any, Any]] = {
        "a": (plain, rows(1), rows(4)),
        "b": (plain, groups(2), groups(4)),
        "ends": (plain, bounds(3), bounds(4)),
        "counts": (apart, bounds(3), bounds(4)),
        "out": (plain, rows(9), rows(8)),
        "activation": (plain, "relu", "silu"),
        "epilogue": (plain, doubled(), halved()),
        "scale_a": (fp8 | scaled, scales(4, 128, 1), scales(6, 128, 1)),
        "scale_b": (fp8 | scaled, scales(5, 2, 1, 1), scales(6, 2, 1, 1)),
        "out_dtype": (plain, None, "bf16"),
        "config": (plain, *(tilekit.MatmulConfig((64, 128), (1, 1), 1, stages=stages) for stages in (3, 4))),
        "target": (plain, None, "sm_90a"),
        "components": (plain, None, tilekit.OwnComponents(consumers=lambda w: Cooperative())),
        "arrays": (
            plain | {"components": tilekit.OwnComponents(payload=PAYLOADS["ahead"])},
            {"factor": torch.Tensor(4 * BLOCK, (1, 128), (128, 1), torch.float32)},
            {"factor": torch.Tensor(5 * BLOCK, (1, 128), (128, 1), torch.float32)},
        ),
    }
    return {name: (rest | {name: one}, rest | {name: other}) for name, (rest, one, other) in values.items()}


CALLS: dict[str, tuple[Callable[..., Any], Callable[[Any], dict[str, tuple[Arguments, Arguments]]]]] = {
    "matmul": (tilekit.matmul, matmul_pairs),
    "grouped_matmul": (tilekit.grouped_matmul, grouped_pairs),
}

NO_PART = {"matmul": {"stream", "precision"}, "grouped_matmul": {"stream"}}
"""Parameters of which no two values fit the same arrays, or that belong to the launch of what is kept."""


def test_one_scale_alone_is_refused_behind_a_kept_launch(torch: Any, bound: list[Any]) -> None:
    """A call that has no other's key is parsed: scales of blocks come in pairs, whatever has been launched before."""
    scaled = grouped_pairs(torch)["scale_a"][0]
    plain = {name: value for name, value in scaled.items() if name not in ("scale_a", "scale_b")}
    tilekit.grouped_matmul(**plain)
    for name in ("scale_a", "scale_b"):
        with pytest.raises(ArgumentError, match="both scales or neither"):
            tilekit.grouped_matmul(**plain, **{name: scaled[name]})


@pytest.mark.parametrize("call", CALLS)
def test_every_argument_is_part_of_the_key(call: str, torch: Any, bound: list[Any]) -> None:
    """Two calls that differ in one argument are bound apart, once each; a new parameter must get a place here."""
    function, make = CALLS[call]
    pairs = make(torch)
    assert set(pairs) == set(inspect.signature(function).parameters) - NO_PART[call]
    kept = (matmuls if call == "matmul" else groups)._launches
    for name, (one, other) in pairs.items():
        kept.launches.clear()
        kept.outputs.clear()
        bound.clear()
        for arguments in (one, other, one, other):
            function(**arguments)
        assert len(bound) == 2, name


def test_precision_is_part_of_the_key(torch: Any, bound: list[Any]) -> None:
    """Operands of f32 that were multiplied once with leave are refused without it."""
    a = torch.Tensor(BLOCK, (64, 64), (64, 1), torch.float32)
    b = torch.Tensor(2 * BLOCK, (64, 64), (1, 64), torch.float32)
    out = torch.Tensor(9 * BLOCK, (64, 64), (64, 1), torch.float32)
    tilekit.matmul(a, b, out=out, precision="tf32")
    with pytest.raises(tilekit.TilekitError, match="TK-MM-001"):
        tilekit.matmul(a, b, out=out)


def test_shared_memory_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block belongs to its name, size, device and stream: two launches share it only where all agree."""
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(scratch, "_blocks", {})

    def memory(*size: int) -> Any:
        return SimpleNamespace(address=made.append(size) or 0x1000 * len(made))

    base: Arguments = {"name": "turns", "size": 1024, "index": 3, "kind": memory, "ordinal": 0, "stream": 7}
    others: Arguments = {
        "name": "workspace",
        "size": 4096,
        "kind": lambda *size: memory(*size),
        "ordinal": 1,
        "stream": 8,
    }
    asked = [*inspect.signature(StreamScratch.address).parameters][1:]
    names = {field.name for field in fields(StreamScratch)} | set(asked)
    assert set(others) == names - {"index"}  # where a launch is told of it

    def address(**change: Any) -> int:
        values = base | change
        block = StreamScratch(**{field.name: values[field.name] for field in fields(StreamScratch)})
        return block.address(**{name: values[name] for name in asked})

    found = [address(), *(address(**{name: value}) for name, value in others.items())]
    assert len(set(found)) == len(found)
    assert found == [address(), *(address(**{name: value}) for name, value in others.items())]
    assert address(index=4) == found[0]


def test_what_an_assembled_kernel_depends_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Another text, target, build of ptxas or option is assembled anew, and the same is not."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))
    runs: list[str] = []

    def run(tool: Tool, ptx: str, _what: str, target: str) -> Entry:
        runs.append(ptx)
        return Entry({"log": LOG, "assembler": tool.id, "target": target}, b"")

    monkeypatch.setattr(ptxas, "_run_ptxas", run)
    tool = Tool("ptxas", tmp_path / "ptxas", (13, 0, 1), "first")
    found = {"tool": tool}
    monkeypatch.setattr(ptxas, "find_ptxas", lambda: found["tool"])
    variants: list[tuple[str, str, Tool, tuple[str, ...]]] = [
        ("text", "sm_90a", tool, ("--verbose",)),
        ("other", "sm_90a", tool, ("--verbose",)),
        ("text", "sm_100a", tool, ("--verbose",)),
        ("text", "sm_90a", Tool("ptxas", tool.path, (13, 0, 2), "first"), ("--verbose",)),
        ("text", "sm_90a", Tool("ptxas", tool.path, (13, 0, 1), "second"), ("--verbose",)),
        ("text", "sm_90a", tool, ("--verbose", "-O1")),
    ]
    for _ in range(2):
        for ptx, target, found["tool"], options in variants:
            monkeypatch.setattr(ptxas, "_OPTIONS", options)
            assembler.assemble(ptx, target, kernel_name="k")
    assert len(runs) == len(variants)
    assert entry_key("ab", "c") != entry_key("a", "bc")


LOG = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Used 32 registers\n"


def test_a_function_belongs_to_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is asked for once in each context, and never used in another one."""
    asked: list[str] = []

    def call(name: str, *_arguments: Any, **_options: Any) -> str:
        asked.append(name)
        return f"function {len(asked)}"

    monkeypatch.setattr(runtime_driver, "call", call)
    monkeypatch.setattr(
        "tilekit.runtime.launch._Function",
        lambda handle: SimpleNamespace(handle=handle, allow=lambda *_arguments: None),
    )
    kernel = CudaKernel.__new__(CudaKernel)
    kernel._functions, kernel._handle = {}, object()
    contexts: list[Any] = [SimpleNamespace(handle=handle, ordinal=0) for handle in (1, 2)]
    config: Any = None
    found = [kernel._function(context, config, "k") for context in (*contexts, *contexts)]
    assert found == ["function 1", "function 2"] * 2
