"""What the array library launches for a product: its kernel's name, grid and shared memory, and its tensor maps.

    python -m benchmarks.library_kernels '848x488x3256 bf16→bf16 mn/mn' '520x4096x7168 f16→f16 mn/k'
    python -m benchmarks.library_kernels --suite random --seed 7 --sample 40

A call of torch's is captured into a graph, whose kernel nodes hold names and parameters; nothing is timed. Of the
parameters those are tensor maps that begin with the address of an operand or of the result. What the driver writes for
each field of a map is learnt from maps that differ in this field alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import count
from typing import Annotated, Any

import typer

from benchmarks.sweep import workload_of
from tilekit.bench.machine import Machine, require_machine
from tilekit.bench.suites import select
from tilekit.bench.workload import MatmulWorkload
from tilekit.runtime import driver
from tilekit.runtime.parameters import TENSOR_MAP_BYTES

PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")
SWIZZLES = ("NONE", "32B", "64B", "128B")
ALIGNMENT = 64
"""Of a tensor map among parameters."""

LAST, BUFFER, SIZE = 0, 1, 2
"""What stands before an entry of `CUDA_KERNEL_NODE_PARAMS.extra` (cuda.h, CU_LAUNCH_PARAM_*)."""

BOXES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 256)
"""Of which the bits of an extent of a box are learnt."""


@cache
def _encoded(promotion: str = "NONE", swizzle: str = "NONE", box: tuple[int, int, int] = (8, 1, 1)) -> int:
    """The driver's map of a tensor of three dimensions, as a number."""
    cuda = driver.bindings()
    encoded = driver.call(
        "cuTensorMapEncodeTiled",
        cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        3,
        1 << 30,
        [cuda.cuuint64_t(4096)] * 3,
        [cuda.cuuint64_t(8192), cuda.cuuint64_t(8192 * 4096)],
        [cuda.cuuint32_t(extent) for extent in box],
        [cuda.cuuint32_t(1)] * 3,
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        getattr(cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{promotion}"),
        cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return int.from_bytes(ctypes.string_at(encoded.getPtr(), TENSOR_MAP_BYTES), "little")


def _one_of(found: int, values: dict[str, int]) -> str:
    """The name of the value whose bits `found` has, where values differ."""
    mask = 0
    for value in values.values():
        for other in values.values():
            mask |= value ^ other
    return next((name for name, value in values.items() if value & mask == found & mask), "?")


def described(found: int) -> str:
    """A map's promotion, swizzle and box, in words."""
    promotion = _one_of(found, {name: _encoded(promotion=name) for name in PROMOTIONS})
    swizzle = _one_of(found, {name: _encoded(swizzle=name) for name in SWIZZLES})
    box = []
    for place in range(3):
        first = (8, 1, 1)
        boxes = [(*first[:place], extent, *first[place + 1 :]) for extent in BOXES if place or extent <= 256]
        values = [_encoded(box=(max(b[0] - b[0] % 8, 8), b[1], b[2])) for b in boxes]
        mask = 0
        for value in values:
            mask |= value ^ values[0]
        low = (mask & -mask).bit_length() - 1 - (3 if place == 0 else 0)
        box.append((found >> low & 255) + 1)
    return f"box {'x'.join(map(str, box))}, swizzle {swizzle}, promotion {promotion}"


def launches(machine: Machine, workload: MatmulWorkload) -> Iterator[str]:
    """The library's kernels for a product, and the maps of each."""
    import torch

    a, b, out = workload.operand_set(machine, count())
    work = partial(machine.matmul, a, b, out)
    work()
    machine.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        work()
    cuda = driver.bindings()
    handle = cuda.CUgraph(int(graph.raw_cuda_graph()))
    nodes = driver.call("cuGraphGetNodes", handle, 64)
    nodes, number = nodes if isinstance(nodes, tuple) else (nodes, len(nodes))
    addresses = {array.data_ptr(): name for name, array in (("a", a), ("b", b), ("out", out))}
    for node in nodes[:number]:
        if driver.call("cuGraphNodeGetType", node) == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            yield from _launch(cuda, node, addresses)


def _launch(cuda: Any, node: Any, addresses: dict[int, str]) -> Iterator[str]:
    params = driver.call("cuGraphKernelNodeGetParams", node)
    kernel = int(params.kern) != 0
    held = params.kern if kernel else params.func
    name = driver.call("cuKernelGetName" if kernel else "cuFuncGetName", held)
    name = name.decode() if isinstance(name, bytes) else str(name)
    grid = "x".join(str(extent) for extent in (params.gridDimX, params.gridDimY, params.gridDimZ))
    yield f"  {name}: grid {grid}, {params.blockDimX} threads, {params.sharedMemBytes} bytes of shared memory"
    for data in _parameters(cuda, params, held, kernel=kernel):
        for at in range(0, len(data) - TENSOR_MAP_BYTES + 1, ALIGNMENT):
            found = int.from_bytes(data[at : at + TENSOR_MAP_BYTES], "little")
            of = addresses.get(found & (1 << 64) - 1)
            if of is not None:
                yield f"    {of}: {described(found)}"


def _parameters(cuda: Any, params: Any, held: Any, *, kernel: bool) -> Iterator[bytes]:
    """The bytes of each parameter, or of all together where the library has laid them out itself."""
    if not int(params.kernelParams):
        words = ctypes.cast(int(params.extra), ctypes.POINTER(ctypes.c_size_t))
        given = {}
        for at in range(0, 8, 2):
            if words[at] == LAST:
                break
            given[words[at]] = words[at + 1]
        yield ctypes.string_at(given[BUFFER], ctypes.c_size_t.from_address(given[SIZE]).value)
        return
    pointers = ctypes.cast(int(params.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    for index in count():
        result, _, size = getattr(cuda, "cuKernelGetParamInfo" if kernel else "cuFuncGetParamInfo")(held, index)
        if result != cuda.CUresult.CUDA_SUCCESS:
            return
        yield ctypes.string_at(pointers[index], size)


def main(
    case: Annotated[list[str] | None, typer.Argument(help="As a sweep's file calls it.")] = None,
    suite: Annotated[str | None, typer.Option(help="The matmuls of suites of `tilekit bench`, with commas.")] = None,
    sample: Annotated[int | None, typer.Option(help="Of the suites.")] = None,
    seed: Annotated[int, typer.Option(help="Of the cases of the suite `random`.")] = 0,
) -> None:
    """Print what the library launches."""
    machine = require_machine()
    workloads: Sequence[Any] = [workload_of(name) for name in case or ()]
    if suite is not None:
        workloads = [*workloads, *(each.workload for each in select(suite.split(","), sample, seed=seed))]
    for workload in workloads:
        if isinstance(workload, MatmulWorkload) and not workload.fused:
            typer.echo(f"{workload.label} {workload.kind}")
            for line in launches(machine, workload):
                typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
