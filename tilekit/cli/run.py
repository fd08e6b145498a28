"""``tilekit run``: one kernel on generated data, checked against float64."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilekit.cli import common

if TYPE_CHECKING:
    import numpy as np

    from tilekit.bench.machine import Machine
    from tilekit.bench.workload import MatmulWorkload, Operands
    from tilekit.kernels.matmul.config import MatmulConfig

_TIMED_LAUNCHES = 50


def run(
    kernel: common.Kernel,
    m: Annotated[int, typer.Option(help="Rows of A and of the result.")] = 512,
    n: Annotated[int, typer.Option(help="Columns of B and of the result.")] = 512,
    k: Annotated[int, typer.Option(help="Columns of A, rows of B.")] = 512,
    batch: Annotated[int | None, typer.Option(help="Number of matrices; none for a plain product.")] = None,
    dtype: common.Dtype = "bf16",
    out_dtype: common.OutDtype = None,
    a_major: common.AMajor = "k",
    b_major: common.BMajor = "k",
    bias: common.Bias = False,
    activation: common.Activation = None,
    target: common.TargetName = "sm_90a",
    device: Annotated[
        str, typer.Option(help="cuda, emulator, or auto: the GPU if it is one of the target's, else the emulator.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Of the generated operands.")] = 0,
    tile: common.Tile = None,
    cluster: common.Cluster = None,
    as_json: common.Json = False,
) -> None:
    """Run KERNEL once on random data and check every element against float64.

    Prints device, config, time and error. Exits with 1 if the result is wrong or the emulator finds a fault.

    Examples: `tilekit run matmul`; `tilekit run matmul --dtype e4m3 --m 1000`;
    `tilekit run matmul --tile 128x128 --cluster 1x2 --activation gelu --bias`.
    """
    with common.presented(as_json):
        common.require_family(kernel)
        workload = common.workload_of((m, n, k), batch, dtype, out_dtype, a_major, b_major, bias, activation)
        config = common.config_of(workload, target, tile, cluster)
        machine, why = _choose(device, target)
        operands = workload.operands(seed)
        if machine is None:
            out, seconds, flops = _on_emulator(workload, operands, config, target)
        else:
            out, seconds, flops = _on_gpu(workload, operands, config, machine)
    accuracy = workload.accuracy(operands, out)
    where = f"emulator of {target}" if machine is None else f"{machine.device} through {machine.library}"
    if as_json:
        facts = {
            "kernel": kernel,
            "shape": workload.label,
            "kind": workload.kind,
            "device": where,
            "note": why,
            "config": str(config),
            "seconds": seconds,
            "flops_per_second": flops,
            "relative_error": accuracy.relative,
            "largest_error": accuracy.largest,
            "worst_element": accuracy.worst,
            "right": accuracy.right,
        }
        typer.echo(json.dumps(facts))
    else:
        pace = f"{flops / 1e12:.1f} TFLOP/s" if flops > 1e11 else f"{flops / 1e6:.0f} MFLOP/s"
        rows: dict[str, Any] = {
            "device": where,
            "config": str(config),
            "time": f"{_duration(seconds)}{'' if machine is None else ' a launch, operands in L2'} ({pace})",
            "error": f"{accuracy.relative:.2e} relative, {accuracy.largest:.2e} at most; "
            f"the worst element has {accuracy.worst:.0%} of what its sum may have",
            "result": _verdict(accuracy.right),
        }
        if why:
            rows["device"] += f" ({why})"
        common.print_facts(f"{kernel} {workload.label}  {workload.kind}", rows)
    raise typer.Exit(common.OK if accuracy.right else common.WRONG)


def _verdict(right: bool) -> Any:
    from rich.text import Text

    return Text("correct", style="bold green") if right else Text("WRONG", style="bold red")


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e6:.1f} us"


def _choose(device: str, target: str) -> tuple[Machine | None, str]:
    """Return the GPU to run on, or None for the emulator, and why it is not the GPU."""
    from tilekit.bench.machine import find_machine
    from tilekit.errors import ArgumentError, DriverError
    from tilekit.runtime import driver
    from tilekit.targets import target as chip_named

    if device not in ("auto", "cuda", "emulator"):
        raise ArgumentError.of("--device", device, legal="auto, cuda or emulator", nearest="auto", code="TK-CLI-003")
    chip = chip_named(target)
    if device == "emulator":
        return None, ""
    machine = find_machine()
    if machine is not None and machine.capability == chip.compute_capability:
        return machine, ""
    wanted = ".".join(map(str, chip.compute_capability))
    if machine is not None:
        why = f"{machine.device} has compute capability {machine.capability[0]}.{machine.capability[1]}, not {wanted}"
    else:
        why = driver.why_unavailable() or "a GPU is here, but neither torch nor CuPy to hold arrays on it"
    if device == "cuda":
        raise DriverError(f"--device cuda: {why}", code="TK-CLI-004")
    return None, why


def _on_emulator(
    workload: MatmulWorkload, operands: Operands, config: MatmulConfig, target: str
) -> tuple[np.ndarray[Any, Any], float, float]:
    import tilekit

    start = time.perf_counter()
    out = tilekit.matmul(
        operands.a,
        operands.b,
        bias=operands.bias,
        activation=workload.activation,
        out_dtype=workload.out_dtype,
        config=config,
        target=target,
    )
    seconds = time.perf_counter() - start
    return out, seconds, workload.flops / seconds


def _on_gpu(
    workload: MatmulWorkload, operands: Operands, config: MatmulConfig, machine: Machine
) -> tuple[np.ndarray[Any, Any], float, float]:
    import tilekit

    a, b = (machine.upload(values) for values in (operands.a, operands.b))
    bias = None if operands.bias is None else machine.upload(operands.bias)
    out = machine.empty(workload.out_shape, workload.out_dtype)
    machine.poison(out)

    def launch() -> None:
        tilekit.matmul(a, b, out=out, bias=bias, activation=workload.activation, config=config)

    launch()
    result = machine.download(out)
    machine.time(launch, _TIMED_LAUNCHES)
    seconds = machine.time(launch, _TIMED_LAUNCHES) / _TIMED_LAUNCHES
    return result, seconds, workload.flops / seconds
