"""tilekit's gemv against torch.mm, each config of a sweep by itself, on the GPU of this machine.

    python -m benchmarks.gemv                                     # every shape and M, the sweep below
    python -m benchmarks.gemv --shape 4096x4096 --tokens 1 --config g1d4,g2d2s2,g1d4p2r --json gemv.json
    python -m benchmarks.gemv --shape 5x1200x15008 --shape 2x1536x8960 --config picked,matmul,g1d2s2c4

A config is written ``g<groups>d<depth>`` and, where it is not the default, ``w<warps>c<cluster>s<CTAs an SM>p<prefetch>
l<L2 bytes>o<overlap>`` and ``r`` for weights that are ready before the launch. ``picked`` is the picker's, ``matmul``
the matmul as its own picker has it.

Weights are rotated through three times the L2 cache, so that each launch finds its own in DRAM. A contestant is one
CUDA graph, a pass over all weights; contestants take turns in rounds, and the median round counts. Bytes are those of
A, B and D once. Results are checked on poisoned outputs before anything is timed.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import tilekit
from tilekit.errors import TilekitError
from tilekit.kernels.gemv.compiled import compiled
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.picker import pick
from tilekit.kernels.gemv.spec import TOKENS, GemvSpec
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.picker import pick as pick_matmul
from tilekit.targets import SM_90A

SHAPES = (
    "4096x4096",
    "8192x8192",
    "57344x8192",
    "8192x28672",
    "2112x7168",
    "24576x1536",
    "7168x2048",
    "7168x16384",
)  # fmt: skip

SWEEP = {
    "k": "picked,g1d4,g2d2,g4d1,g1d4s2,g2d2s2,g4d1s2,g1d4p0,g1d4p2,g1d4p4o8,g1d4w4s2,g1d4l128,g1d4c2,g1d4r,g1d4rp0",
    "mn": "picked,g1d2,g2d1,g1d2s2,g2d1s2,g1d2p0,g1d2p2,g1d2w4s2,g1d2c2,g2d1c2,g1d2l128,g1d2r,g1d2rp0",
}

LETTERS = {
    "g": "groups",
    "d": "depth",
    "w": "warps",
    "c": "cluster",
    "s": "ctas_per_sm",
    "p": "prefetch",
    "l": "l2_bytes",
    "o": "overlap",
}

ROUNDS = 5
ROUND_SECONDS = 0.012

Replay = Callable[[], None]


def parse(text: str) -> tuple[GemvConfig | None, bool]:
    """A config from its short form, and whether the weights are ready; None for the picker's."""
    if text in ("picked", "pickedr"):
        return None, text.endswith("r")
    found = dict(re.findall(r"([gdwcsplo])(\d+)", text))
    if re.sub(r"[gdwcsplo]\d+|r", "", text) or not found:
        raise typer.BadParameter(f"{text!r} is no config; write for example g1d4s2")
    return GemvConfig(**{LETTERS[letter]: int(value) for letter, value in found.items()}), "r" in text


class Problem:
    """Operands and outputs of one shape, in as many sets as outlast the L2 cache."""

    def __init__(self, torch: Any, m: int, n: int, k: int, dtype: str, b_major: str) -> None:
        self.torch, self.m, self.n, self.k = torch, m, n, k
        kind = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}[dtype]
        self.size = 1 if dtype == "e4m3" else 2
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        sets = max(2, -(-3 * l2 // (n * k * self.size)))
        shape = (n, k) if b_major == "k" else (k, n)
        self.a = [torch.randn(m, k, device="cuda").to(kind) for _ in range(sets)]
        stored = [torch.randn(shape, device="cuda").to(kind) for _ in range(sets)]
        self.b = [weights.T if b_major == "k" else weights for weights in stored]
        self.out = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        self.held: list[Any] = []  # what graphs use beside, whose memory must not be another's

    @property
    def bytes(self) -> int:
        """What one launch must move."""
        return (self.n + self.m) * self.k * self.size + self.m * self.n * 2

    def check(self, launches: list[Replay]) -> None:
        """Launch the first and the last on poisoned outputs and compare."""
        for at in (0, -1):
            self.out[at].fill_(float("nan"))
            launches[at]()
            expected = self.a[at].float() @ self.b[at].float()
            error = float((self.out[at].float() - expected).norm() / expected.norm())
            if not error < 6e-3:
                raise AssertionError(f"relative error {error:.2e}")

    def capture(self, launches: list[Replay]) -> Replay:
        """One graph of all launches."""
        stream = self.torch.cuda.Stream()
        with self.torch.cuda.stream(stream):
            for launch in launches:
                launch()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for launch in launches:
                launch()
        replay: Replay = graph.replay
        return replay


def library(problem: Problem) -> list[Replay]:
    """torch's own product."""
    torch = problem.torch
    if problem.size == 1:
        one = torch.ones((), device="cuda")
        # torch's fp8 product wants M in multiples of 16.
        padded = [torch.zeros(16, problem.k, device="cuda").to(a.dtype) for a in problem.a]
        for whole, a in zip(padded, problem.a, strict=True):
            whole[: problem.m].copy_(a)
        outs = [torch.empty(16, problem.n, device="cuda", dtype=torch.bfloat16) for _ in problem.a]
        problem.held += [*padded, *outs]

        def scaled(a: Any, b: Any, padded_out: Any, out: Any) -> None:
            torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, out=padded_out)

        return [
            lambda a=a, b=b, p=p, out=out: scaled(a, b, p, out)
            for a, b, p, out in zip(padded, problem.b, outs, problem.out, strict=True)
        ]
    return [
        lambda a=a, b=b, out=out: torch.mm(a, b, out=out)
        for a, b, out in zip(problem.a, problem.b, problem.out, strict=True)
    ]


def ours(problem: Problem, text: str, dtype: str, b_major: str) -> tuple[list[Replay], str]:
    """tilekit's launches with one config, and that config in full."""
    operands = list(zip(problem.a, problem.b, problem.out, strict=True))
    if text == "matmul":
        a, b, out = operands[0]
        whole = MatmulArguments.parse(a, b, out=out).spec
        product = tilekit.compile(whole, config=pick_matmul(whole, SM_90A, m=problem.m, n=problem.n, k=problem.k))
        return [product.bind(*arrays) for arrays in operands], f"{product.config}"
    config, ready = parse(text)
    spec = GemvSpec(
        a_dtype=dtype,  # type: ignore[arg-type]
        b_dtype=dtype,  # type: ignore[arg-type]
        b_major=b_major,  # type: ignore[arg-type]
        tokens=next(tokens for tokens in TOKENS if tokens >= problem.m),
        weights_ready=ready,
    )
    if config is None:
        config = pick(spec, SM_90A, n=problem.n, k=problem.k)
    kernel = compiled(spec, config, SM_90A)
    plans = [kernel.bind(a, b, out) for a, b, out in zip(problem.a, problem.b, problem.out, strict=True)]
    return list(plans), f"{config}{', ready' if ready else ''}"


def timed(torch: Any, replays: dict[str, Replay], launches: int) -> dict[str, float]:
    """Median seconds of one launch of each contestant, in rounds that begin with another one each time."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(replay: Replay, count: int) -> float:
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / count

    counts = {name: max(3, int(ROUND_SECONDS / measure(replay, 3))) for name, replay in replays.items()}
    seen: dict[str, list[float]] = {name: [] for name in replays}
    names = list(replays)
    for turn in range(ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            measure(replays[name], max(1, counts[name] // 4))
            seen[name].append(measure(replays[name], counts[name]) / launches)
    return {name: statistics.median(times) for name, times in seen.items()}


def main(
    shape: Annotated[
        list[str] | None, typer.Option(metavar="[Mx]NxK", help="With M, instead of --tokens. Repeatable.")
    ] = None,
    tokens: Annotated[str, typer.Option(help="Rows of A, with commas.")] = "1,2,4,8",
    config: Annotated[str | None, typer.Option(help="Configs in short form, with commas.")] = None,
    dtype: Annotated[str, typer.Option(help="bf16, f16 or e4m3.")] = "bf16",
    b_major: Annotated[str, typer.Option(help="k or mn.")] = "k",
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Time gemv configs and torch.mm against each other."""
    import torch

    torch.manual_seed(0)
    rows = []
    for text in shape or SHAPES:
        *rows_of_a, n, k = map(int, text.split("x"))
        for m in rows_of_a or [int(count) for count in tokens.split(",")]:
            problem = Problem(torch, m, n, k, dtype, b_major)
            replays: dict[str, Replay] = {}
            words: dict[str, str] = {}
            contestants: dict[str, Callable[[], tuple[list[Replay], str]]] = {
                "torch": lambda problem=problem: (library(problem), "torch.mm"),
                **{
                    name: lambda problem=problem, name=name: ours(problem, name, dtype, b_major)
                    for name in (config or SWEEP[b_major]).split(",")
                },
            }
            for name, make in contestants.items():
                try:
                    launches, words[name] = make()
                    if not (name == "torch" and problem.size == 1):
                        problem.check(launches)
                    replays[name] = problem.capture(launches)
                except (TilekitError, AssertionError, RuntimeError) as error:
                    typer.echo(f"{m}x{n}x{k} {name}: {type(error).__name__}: {error}", err=True)
            times = timed(torch, replays, len(problem.a))
            typer.echo(f"\n{m}x{n}x{k} {dtype}, B {b_major}-major, {len(problem.a)} sets")
            for name, seconds in sorted(times.items(), key=lambda item: item[1]):
                ratio = times["torch"] / seconds if "torch" in times else float("nan")
                rate = problem.bytes / seconds / 1e9
                typer.echo(f"  {name:<12}{seconds * 1e6:8.2f} us {rate:8.0f} GB/s {ratio:7.3f}  {words[name]}")
                rows.append({"m": m, "n": n, "k": k, "config": name, "us": seconds * 1e6, "gbps": rate, "ratio": ratio})
            del problem, replays, contestants
            torch.cuda.empty_cache()
    if json_file is not None:
        json_file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
