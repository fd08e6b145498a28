"""``tilekit run``: one kernel on generated data, checked against float64."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilekit.cli import common, kernels, options, own_kernel, tables
from tilekit.cli.progress import progress_bar, waiting

if TYPE_CHECKING:
    import numpy as np

    from tilekit.bench.machine import Machine
    from tilekit.kernels.compiled import CompiledKernel
    from tilekit.kernels.matmul.config import KernelConfig

_TIMED_LAUNCHES = 50


@options.describes_a_call(512, 512, 512)
def run(
    kernel: options.Kernel,
    call: options.CallOptions,
    batch: Annotated[int | None, typer.Option(help="Number of matrices; none for a plain product.")] = None,
    device: Annotated[
        str,
        typer.Option(help="cuda, hip, emulator, or auto: the GPU if it is one of the target's, else the emulator."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the generated operands.")] = 0,
    as_json: common.Json = False,
) -> None:
    """Run KERNEL once on random data and check every element against float64.

    Prints device, config, time and error. Exits with 1 if the result is wrong or the emulator finds a fault.

    Examples: `tilekit run matmul`; `tilekit run matmul --dtype e4m3 --m 1000`;
    `tilekit run matmul --tile 128x128 --cluster 1x2 --activation gelu --bias`;
    `tilekit run attention --queries 300 --causal`; `tilekit run grouped_matmul --sizes 5,0,130`;
    `tilekit run conv2d --h 14 --c 128 --k 256 --padding 1 --residual`;
    `tilekit run block_scaled --dtype nvfp4`; `tilekit run mine.py:kernel --m 200`, a composed kernel
    of yours, on the emulator under three interleavings.
    """
    if own_kernel.names_file(kernel):
        return own_kernel.run(kernel, call, batch=batch, device=device, seed=seed, as_json=as_json)
    with common.presented(as_json):
        from tilekit.runtime.emulated import watched

        _, workload, target, config = kernels.asked(kernel, call, batch)
        place = choose_place(device, target)
        kernels.require_means(workload, emulated=place.emulated)
        with waiting("making operands", as_json):
            operands: Any = workload.operands(seed)
        with progress_bar("clusters", as_json) as progress, watched(progress):
            if place.machine is None:
                built, out, seconds = _with_numpy(workload, operands, config, place.target)
            else:
                built, out, seconds = _with_library(workload, seed, config, place.machine)
    with waiting("checking every element in float64", as_json):
        accuracy = workload.accuracy(operands, out)
    flops = workload.flops / seconds
    if as_json:
        facts = {
            "kernel": kernel,
            "shape": workload.label,
            "kind": workload.kind,
            "device": place.name,
            "note": place.note,
            "name": built.name,
            "config": str(built.config),
            "seconds": seconds,
            "flops_per_second": flops,
            "relative_error": accuracy.relative,
            "largest_error": accuracy.largest,
            "worst_element": accuracy.worst,
            "right": accuracy.right,
        }
        typer.echo(json.dumps(facts))
    else:
        rows: dict[str, Any] = {
            # The whole reason is long, and `tilekit doctor` has it.
            "device": f"{place.name} ({place.note.partition(': ')[0]})" if place.note else place.name,
            "kernel": built.name,
            "config": str(built.config),
            "time": f"{_duration(seconds)} {place.timed} ({pace(flops)})",
            "error": f"{accuracy.relative:.2e} relative, {accuracy.largest:.2e} at most; "
            f"the worst element is at {accuracy.worst:.0%} of its limit",
            "result": _verdict(accuracy.right),
        }
        tables.print_facts(f"{kernel} {workload.label}  {workload.kind}", rows)
    raise typer.Exit(common.OK if accuracy.right else common.WRONG)


def _verdict(right: bool) -> Any:
    from rich.text import Text

    return Text("correct", style="bold green") if right else Text("WRONG", style="bold red")


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e6:.1f} us"


def pace(flops: float) -> str:
    """Operations a second, in a unit that shows their first digits."""
    if flops > 1e11:
        return f"{flops / 1e12:.1f} TFLOP/s"
    scale, unit = next((one for one in ((1e6, "M"), (1e3, "k")) if flops >= one[0]), (1.0, ""))
    return f"{flops / scale:.0f} {unit}FLOP/s"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the kernel runs: through an array library, or with NumPy arrays on the target that matmul is told."""

    name: str
    timed: str
    machine: Machine | None = None
    target: str = ""
    note: str = ""

    @property
    def device(self) -> str | None:
        """What `bind` is told where arrays in host memory are copied to a GPU and back."""
        return self.target if self.target in ("cuda", "hip") else None

    @property
    def emulated(self) -> bool:
        """Whether no GPU computes."""
        return self.machine is None and self.device is None


def choose_place(device: str, target: str) -> Place:
    """Choose where a kernel for `target` runs: ``cuda``, ``hip``, ``emulator``, or ``auto``."""
    from tilekit.bench.machine import find_machine
    from tilekit.errors import ArgumentError, DriverError
    from tilekit.runtime import driver, hip
    from tilekit.targets import target as chip_named

    chip = chip_named(target)
    runtime = "cuda" if chip.isa == "ptx" else "hip"
    if device not in ("auto", runtime, "emulator"):
        legal = f"auto, {runtime} or emulator of a kernel for {chip.name}"
        raise ArgumentError.of("--device", device, legal=legal, nearest="auto", code="TK-CLI-003")
    emulator = Place(f"emulator of {target}", "in all", target=target)
    if device == "emulator":
        return emulator
    machine = find_machine()
    if machine is not None and machine.capability == chip.compute_capability:
        return Place(f"{machine.device} through {machine.library}", "a launch, operands in L2", machine)
    why = driver.why_unavailable() if runtime == "cuda" else _why_not_on_amd(chip.name)
    if why is None and runtime == "hip":
        return Place(hip.devices()[0].name, "with the copies to and from the GPU", target="hip")
    if why is None:
        first = driver.devices()[0]
        if first.compute_capability == chip.compute_capability:
            # Neither torch nor CuPy is here to hold arrays on the GPU: they are copied there and back.
            return Place(first.name, "with the copies to and from the GPU", target="cuda")
        major, minor = first.compute_capability
        why = f"{first.name} has compute capability {major}.{minor}, not {'.'.join(map(str, chip.compute_capability))}"
    if device == runtime:
        raise DriverError(f"--device {runtime}: {why}", code="TK-CLI-004")
    return replace(emulator, note=why)


def _why_not_on_amd(chip: str) -> str | None:
    """Why the first AMD GPU does not run kernels for a chip, if it does not."""
    from tilekit.runtime import hip

    why = hip.why_unavailable()
    if why is not None or hip.devices()[0].chip == chip:
        return why
    return f"{hip.devices()[0].name} is {hip.devices()[0].chip}, not {chip}"


def _with_numpy(
    workload: Any, operands: Any, config: KernelConfig | None, target: str
) -> tuple[CompiledKernel, np.ndarray[Any, Any], float]:
    from tilekit.bench.attention import AttentionWorkload

    a, b, options = workload.call(operands)
    options |= {"config": config, "target": target}
    if not isinstance(workload, AttentionWorkload):  # whose result has the operands' type
        options["out_dtype"] = kernels.quantised_to(workload) or workload.out_dtype
    function, kernel_for = kernels.functions_of(workload)
    kernel = kernel_for(a, b, **options)
    start = time.perf_counter()
    out = function(a, b, **options)
    seconds = time.perf_counter() - start
    return kernel, _numbers(out), seconds


def _numbers(result: Any) -> Any:
    """What a result stands for, if it is values and scales."""
    import tilekit

    return tilekit.dequantise(*result) if isinstance(result, tuple) else result


def _with_library(
    workload: Any, seed: int, config: KernelConfig | None, machine: Machine
) -> tuple[CompiledKernel, np.ndarray[Any, Any], float]:
    a, b, options = workload.call(workload.operands(seed, machine.upload))
    options |= {"config": config}
    to, out = kernels.quantised_to(workload), None
    if to is None:
        out = machine.empty(workload.out_shape, workload.out_dtype)
        machine.poison(out)
        options["out"] = workload.placed(out)
    else:
        options["out_dtype"] = to
    function, kernel_for = kernels.functions_of(workload)
    kernel = kernel_for(a, b, **options)

    def launch() -> None:
        function(a, b, **options)

    launch()
    result = machine.download(_numbers(function(a, b, **options)) if out is None else out)
    machine.time(launch, _TIMED_LAUNCHES)
    seconds = machine.time(launch, _TIMED_LAUNCHES) / _TIMED_LAUNCHES
    return kernel, result, seconds
