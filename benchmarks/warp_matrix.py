"""tilekit's matmul by a warp's matrix instruction against Triton's, on whatever GPU is here; and what that can reach.

    python -m benchmarks.warp_matrix                                # squares and layers of models, picked configs
    python -m benchmarks.warp_matrix --shape 4096x4096x4096 --sweep --json sweep.json
    python -m benchmarks.warp_matrix --ceiling

Text for sm_80 runs on every later GPU. Triton is made to write the same instructions (``TRITON_OVERRIDE_ARCH=sm80``);
its tile is the quickest of a dozen by measurement, ours the picked one. Contestants take turns in rounds, and the
median round counts; each is checked against torch before it is timed.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

os.environ["TRITON_OVERRIDE_ARCH"] = "sm80"  # before Triton reads it

SQUARES = tuple(f"{size}x{size}x{size}" for size in (512, 1024, 2048, 3072, 4096, 6144, 8192))
MODELS = (
    "2048x4096x4096",
    "2048x14336x4096",
    "2048x4096x14336",
    "2048x6144x4096",
    "4096x5120x5120",
    "4096x13824x5120",
    "1024x8192x8192",
    "1024x28672x8192",
    "512x4096x4096",
    "128x4096x4096",
    "128x14336x4096",
    "64x8192x8192",
)
ROUNDS = 7
ROUND_SECONDS = 0.008

TRITON_CONFIGS = (
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (128, 256, 32, 8, 4),
    (256, 128, 32, 8, 4),
    (128, 128, 64, 4, 3),
    (128, 128, 32, 4, 4),
    (128, 128, 64, 8, 3),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 5),
    (64, 256, 32, 4, 4),
    (32, 128, 64, 4, 4),
)
"""Tile, depth, warps and stages."""


def triton_contestants() -> tuple[Callable[..., None], Iterable[tuple[int, ...]]]:
    """Triton's matmul with pointers and ``tl.dot``, and its tiles."""
    import triton

    from benchmarks.triton_warp_matmul import launch

    assert triton.knobs.runtime.override_arch == "sm80"
    return launch, TRITON_CONFIGS


def milliseconds(contestants: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The median round of each, which take turns."""
    import torch

    graphs: dict[str, tuple[Any, int]] = {}
    for name, launch in contestants.items():
        launch()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(3):
            launch()
        end.record()
        torch.cuda.synchronize()
        count = max(3, int(ROUND_SECONDS * 1e3 / (begin.elapsed_time(end) / 3 + 1e-3)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                launch()
        graphs[name] = graph, count
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, (graph, count) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) / count)
    return {name: statistics.median(each) for name, each in times.items()}


def ceiling() -> dict[str, float]:
    """TFLOP/s of mma.sync from registers, of 16-bit operands, by warps of a multiprocessor."""
    import cupy

    found = {}
    for warps in (4, 8, 16):
        tiles, turns = 8, 4096
        sums = [[f"%f{4 * tile + i}" for i in range(4)] for tile in range(tiles)]
        body = "\n".join(
            f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{', '.join(each)}}}, {{%r0, %r1, %r2, %r3}}, "
            f"{{%r4, %r5}}, {{{', '.join(each)}}};"
            for each in sums
        )
        clear = "\n".join(f"mov.f32 {register}, 0f00000000;" for each in sums for register in each)
        total = "\n".join(f"add.f32 %f0, %f0, {register};" for each in sums for register in each[:1])
        text = f""".version 7.0
.target sm_80
.address_size 64
.visible .entry ceiling(.param .u64 out)
.maxntid {32 * warps}, 1, 1
{{
.reg .f32 %f<{4 * tiles}>; .reg .b32 %r<8>; .reg .b64 %d<2>; .reg .pred %p;
mov.u32 %r7, %tid.x; mov.b32 %r0, %r7; mov.b32 %r1, %r7; mov.b32 %r2, %r7; mov.b32 %r3, %r7;
mov.b32 %r4, %r7; mov.b32 %r5, %r7; mov.u32 %r6, 0;
{clear}
loop:
{body}
add.u32 %r6, %r6, 1; setp.lt.u32 %p, %r6, {turns}; @%p bra loop;
{total}
ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r7, 4; add.u64 %d0, %d0, %d1; st.global.f32 [%d0], %f0;
ret;
}}
"""
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".ptx", delete=False) as file:
            file.write(text)
        entry = cupy.RawModule(path=file.name).get_function("ceiling")
        os.unlink(file.name)
        out = cupy.zeros(32 * warps, cupy.float32)
        sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
        shape = (sms,), (32 * warps,), (out,)
        entry(*shape)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(20):
            entry(*shape)
        end.record()
        end.synchronize()
        seconds = cupy.cuda.get_elapsed_time(begin, end) / 20e3
        found[f"{warps} warps"] = 2 * 16 * 8 * 16 * tiles * turns * warps * sms / seconds / 1e12
    return found


def main(
    shape: Annotated[str, typer.Option(help="MxNxK, several with commas; default: squares and layers.")] = "",
    target: Annotated[str, typer.Option(help="Chip that the text is for.")] = "sm_80",
    dtype: Annotated[str, typer.Option(help="bfloat16 or float16.")] = "bfloat16",
    sweep: Annotated[bool, typer.Option(help="Every candidate of ours, too.")] = False,
    peers: Annotated[bool, typer.Option(help="Triton beside it.")] = True,
    only_ceiling: Annotated[bool, typer.Option("--ceiling", help="What the instruction reaches alone.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Where to write what was measured.")] = None,
) -> None:
    """Time it, and print a table."""
    import torch

    from tilekit.dtypes import as_dtype
    from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
    from tilekit.kernels.matmul.picker import pick, ranked
    from tilekit.kernels.matmul.spec import MatmulSpec
    from tilekit.targets import target as target_named

    if only_ceiling:
        print(ceiling())
        return
    kind, chip = getattr(torch, dtype), target_named(target)
    operand = as_dtype(kind)
    spec = MatmulSpec(operand, operand, operand)
    results, ratios = [], []
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for each in shape.split(",") if shape else (*SQUARES, *MODELS):
        m, n, k = map(int, each.split("x"))
        a = torch.randn(m, k, device="cuda", dtype=kind)
        b = torch.randn(n, k, device="cuda", dtype=kind)
        expected = a @ b.T
        out = torch.empty_like(expected)
        picked = pick(spec, chip, m=m, n=n, k=k, sms=sms)
        configs = {"picked": picked}
        if sweep:
            estimates = ranked(spec, chip, m=m, n=n, k=k, sms=sms)
            near = [one.config for one in estimates if one.total < 2.5 * estimates[0].total]
            configs |= {str(config): config for config in near if config.split_k in (1, picked.split_k)}
        contestants: dict[str, Callable[[], None]] = {}
        with ThreadPoolExecutor() as pool:
            kernels = {name: compiled(spec, config, chip, MatmulKernel) for name, config in configs.items()}
            waiting = {name: pool.submit(lambda kernel=kernel: kernel.cuda) for name, kernel in kernels.items()}
        for name, kernel in kernels.items():
            if (fault := waiting[name].exception()) is not None:
                print(f"# {name}: {fault}")
                continue
            plan = kernel.bind(a, b.T, out)
            out.fill_(math.nan)
            plan()
            torch.testing.assert_close(out, expected, rtol=2e-2, atol=0.05 * k**0.5)
            contestants[name] = plan
        if peers:
            launch, tiles = triton_contestants()
            for tile in tiles:
                try:
                    out.fill_(math.nan)
                    launch(a, b, out, tile)
                    torch.testing.assert_close(out, expected, rtol=2e-2, atol=0.05 * k**0.5)
                except Exception as fault:  # a tile that does not fit is no contestant
                    print(f"# triton {tile}: {type(fault).__name__}")
                    continue
                contestants[f"triton {tile}"] = partial(launch, a, b, out, tile)
        times = milliseconds(contestants)
        theirs = {name: time for name, time in times.items() if name.startswith("triton")}
        ours = {name: time for name, time in times.items() if name not in theirs}
        best = min(ours, key=lambda name: ours[name])
        flops = 2 * m * n * k / 1e9
        line = f"{each:>18}  picked {flops / times['picked']:6.0f} TFLOP/s  ({picked})"
        if theirs:
            peer = min(theirs, key=lambda name: theirs[name])
            ratios.append(theirs[peer] / times["picked"])
            line += f"  {peer} {flops / theirs[peer]:6.0f}  ratio {ratios[-1]:.2f}"
        if sweep:
            line += f"  best {flops / ours[best]:6.0f} ({best})"
        print(line, flush=True)
        results.append({"shape": each, "picked": str(picked), "milliseconds": times})
    if ratios:
        print(f"geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.3f}, worst {min(ratios):.3f}")
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    typer.run(main)
