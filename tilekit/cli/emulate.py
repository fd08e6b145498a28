"""``tilekit emulate``: any file of PTX or AMDGCN on the emulator, with arguments from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tilekit.cli import common, own_kernel
from tilekit.cli.options import Extents, lettered
from tilekit.cli.progress import progress_bar

if TYPE_CHECKING:
    import numpy as np

    from tilekit.cli.emulate_arguments import Argument
    from tilekit.emulator import Debugger, EmulatorError, Exploration, Kernel, LaunchReport, Module
    from tilekit.emulator.core.schedules import Progress

_NO_KERNEL = "a file with a kernel (.entry in PTX, .amdhsa_kernel in AMDGCN)"


def emulate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="PTX, AMDGCN text or an AMD code object; or FILE.py:NAME, a composed kernel of yours, launched as it "
            "declares, on small whole numbers.",
        ),
    ],
    entry: Annotated[str | None, typer.Option(help="Kernel of the file. Default: the only one.")] = None,
    grid: Annotated[str, typer.Option(metavar="X,Y,Z", help="CTAs, or workgroups.")] = "1",
    block: Annotated[str, typer.Option(metavar="X,Y,Z", help="Threads of a CTA. Default: as the file says.")] = "",
    cluster: Annotated[str, typer.Option(metavar="X,Y,Z", help="CTAs of a cluster.")] = "",
    shared: Annotated[int, typer.Option(help="Dynamic shared memory (LDS) of a CTA, bytes.")] = 0,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            help="An argument, in order: f32[64,64]=random:0, bf16[8]=range, u8[16]=zeros, @file.npy, "
            "const:f32[8]=ones (not to be written), i32:7, map:0,box=64x64,swizzle=128B (a tensor map of argument 0), "
            "null."
        ),
    ] = None,
    show: Annotated[list[int] | None, typer.Option("--print", help="Print this argument's buffer afterwards.")] = None,
    save: Annotated[list[str] | None, typer.Option(metavar="N=FILE.npy", help="Save argument N's buffer.")] = None,
    target: Annotated[str | None, typer.Option(help="Chip. Default: the one that the file names.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order of events.")] = 0,
    schedule: Annotated[str, typer.Option(help="adversarial, random or fair.")] = "adversarial",
    check: Annotated[str, typer.Option(help="full, protocol or off.")] = "full",
    step_budget: Annotated[
        int | None,
        typer.Option(metavar="N", help="Basic blocks after which a launch is stopped. Default: 200 million."),
    ] = None,
    explore: Annotated[int, typer.Option(metavar="N", help="Try N orders, from --seed on, and stop at a bad one.")] = 0,
    timeline: Annotated[Path | None, typer.Option(help="Write who did what when, for ui.perfetto.dev.")] = None,
    statistics: Annotated[bool, typer.Option("--statistics", help="Count instructions, copies, conflicts.")] = False,
    m: Annotated[int | None, typer.Option(help="Of a composed kernel: extent m of its operands. Default: 64.")] = None,
    n: Annotated[int | None, typer.Option(help="Of a composed kernel: extent n.")] = None,
    k: Annotated[int | None, typer.Option(help="Of a composed kernel: extent k.")] = None,
    extent: Extents = None,
    stop: Annotated[
        str | None,
        typer.Option(help="Stop at a line, a label, or such as wait=full[1],role=load, print the state, and end."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Run a kernel of FILE.ptx, FILE.s or FILE.hsaco on the emulator, with every check, and say what was found.

    Exits with 1 if there is a race, a hang or another fault, with 2 if the launch is not possible as given.

    Examples: `tilekit emulate add.ptx --block 128 --arg f32[128]=range --arg f32[128]=zeros --print 1`;
    `tilekit emulate matmul.ptx --explore 50`; `tilekit emulate hang.ptx --stop wait=full[0]`; `tilekit emulate
    add.hsaco --entry add --grid 4 --arg f32[1024]=range --arg f32[1024]=ones --arg f32[1024]=zeros --arg i32:1024`;
    `tilekit emulate mine.py:kernel --m 200 --explore 50`.
    """
    from tilekit.emulator import EmulatorError

    with common.presented(as_json):
        _check_together(explore, stop, timeline, statistics, show, save)
        try:
            device = {"seed": seed, "schedule": schedule, "check": check}
            extents = {letter: given for letter, given in (("m", m), ("n", n), ("k", k)) if given is not None}
            extents |= lettered(extent)
            args: Sequence[Argument] = ()
            outputs: list[tuple[int, Path | None]] = []
            if own_kernel.names_file(str(file)):
                shape = {"entry": entry, "grid": grid != "1" and grid, "block": block, "cluster": cluster}
                others = {"shared": shared, "arg": arg, "print": show, "save": save, "step-budget": step_budget}
                ready = _bound(str(file), extents, device, target, {**shape, **others})
            else:
                _require_no_extents(extents)
                module = _load(file, target, seed, schedule, check)
                kernel = _kernel(module, entry)
                from tilekit.cli.emulate_arguments import arguments_of

                args = arguments_of(module.device, arg or [])
                outputs = _outputs(args, show or [], save or [])
                ready = _ready(kernel, args, grid, block, cluster, shared, step_budget)
            if stop is not None:
                with ready.debug(stop) as session:
                    _present_stop(session, as_json)
                raise typer.Exit(common.OK)
            with progress_bar("orders" if explore else ready.unit, as_json) as progress:
                if explore:
                    found = ready.explore(explore, seed=seed, progress=progress)
                else:
                    report = ready.launch(progress, statistics, timeline)
        except EmulatorError as error:
            _present_fault(error, as_json)
    if explore:
        _present_exploration(found, as_json)
        raise typer.Exit(common.OK if found.clean else common.WRONG)
    with common.presented(as_json):
        _present(report, args, outputs, as_json)
    raise typer.Exit(common.OK if report.clean else common.WRONG)


@dataclass(frozen=True)
class _Ready:
    """A launch that is ready to be made: once, in many orders, or up to a stop."""

    unit: str
    launch: Callable[[Progress | None, bool, Path | None], LaunchReport]
    explore: Callable[..., Exploration]
    debug: Callable[[str], Debugger]


def _ready(
    kernel: Kernel, args: Sequence[Argument], grid: str, block: str, cluster: str, shared: int, step_budget: int | None
) -> _Ready:
    """Read the shape of a launch of a file's kernel."""
    shape: dict[str, Any] = {
        "args": args,
        "grid": _dims(grid, "--grid"),
        "block": _dims(block, "--block") if block else _required_block(kernel),
        "shared_bytes": shared,
    }
    amd = _is_amd(kernel)
    if amd:
        _check_amd(cluster)
    else:
        shape["cluster"] = _dims(cluster, "--cluster") if cluster else None
    if step_budget is not None:
        shape["step_budget"] = step_budget

    def launch(progress: Progress | None, statistics: bool, timeline: Path | None) -> LaunchReport:
        return kernel.launch(progress=progress, statistics=statistics, timeline=timeline, **shape)

    def debug(stop: str) -> Debugger:
        return kernel.debug(stop=stop, **shape)

    return _Ready("workgroups" if amd else "CTAs", launch, partial(kernel.explore, **shape), debug)


def _bound(
    kernel: str, extents: dict[str, int], device: dict[str, Any], target: str | None, others: dict[str, Any]
) -> _Ready:
    """Bind a composed kernel of a file to arrays of small whole numbers; `others` are options that it says itself."""
    from tilekit.kernels.plan import EmulatedPlan
    from tilekit.runtime.emulated import watched

    found = own_kernel.load(kernel)
    given = {f"--{name}": value for name, value in others.items()}
    own_kernel.refuse_options(kernel, given | {"--target": target != found.target.name and target})
    seed = device.pop("seed")
    inputs = found.example(**own_kernel.extents_of(found, extents, {}))
    plan = found.bind(**inputs, seed=seed, emulator=device)
    assert isinstance(plan, EmulatedPlan), "arrays in host memory"

    def launch(progress: Progress | None, statistics: bool, timeline: Path | None) -> LaunchReport:
        with watched(progress):
            return plan.emulate(statistics=statistics, timeline=timeline)

    return _Ready("clusters", launch, plan.explore, plan.debug)


def _require_no_extents(extents: dict[str, int]) -> None:
    """Refuse extents of a file of assembly, whose arguments have their own."""
    from tilekit.cli.emulate_arguments import CODE
    from tilekit.errors import ArgumentError

    for letter, extent in extents.items():
        raise ArgumentError.of(
            f"--{letter}", extent, legal="for a composed kernel, FILE.py:NAME; --arg here", code=CODE
        )


def _present_fault(error: EmulatorError, as_json: bool) -> NoReturn:
    """Print all that the emulator says of a fault, and exit: with 2 if the launch was asked for wrongly."""
    from tilekit.emulator import LaunchError

    exit_code = common.USAGE if isinstance(error, LaunchError) else common.WRONG
    kind = type(error).__name__
    if as_json:
        facts = {"error": error.message, "code": kind, "exit": exit_code, "line": error.line, "role": error.role,
                 "warp": error.warp, "cta": error.cta, "report": str(error)}  # fmt: skip
        typer.echo(json.dumps(facts))
    else:
        typer.secho(f"error [{kind}]", fg="red", bold=True, err=True)
        typer.secho(str(error), fg="red", err=True)
    raise typer.Exit(exit_code)


# -- what was asked --------------------------------------------------------------------------------------------------


def _check_together(
    explore: int,
    stop: str | None,
    timeline: Path | None,
    statistics: bool,
    show: list[int] | None,
    save: list[str] | None,
) -> None:
    """Refuse options that would have no effect beside --explore or --stop."""
    from tilekit.cli.emulate_arguments import CODE, require_writable
    from tilekit.errors import ArgumentError

    main = "--explore" if explore else "--stop" if stop is not None else ""
    given = {
        "--stop": bool(explore) and stop is not None,
        "--timeline": timeline is not None,
        "--statistics": statistics,
        "--print": bool(show),
        "--save": bool(save),
    }
    idle = [option for option, present in given.items() if present]
    if main and idle:
        raise ArgumentError(f"{main} goes without {', '.join(idle)}: run once more without {main}", code=CODE)
    if timeline is not None:
        require_writable(timeline, "--timeline")


def _is_amd(kernel: object) -> bool:
    """Whether a kernel is one for an AMD chip."""
    from tilekit.emulator.gcn.kernel import Kernel as AmdKernel

    return isinstance(kernel, AmdKernel)


def _check_amd(cluster: str | None) -> None:
    """Refuse what is there for PTX only."""
    from tilekit.cli.emulate_arguments import CODE
    from tilekit.errors import ArgumentError

    if cluster:
        raise ArgumentError("--cluster: for PTX only; leave it out for AMDGCN", code=CODE)


def _load(file: Path, target: str | None, seed: int, schedule: str, check: str) -> Module:
    from tilekit.cli.sources import read_source
    from tilekit.emulator import Device

    source = read_source(file)
    device = Device(source.chip(target), seed=seed, schedule=schedule, check=check)
    return device.load(source.text)


def _kernel(module: Module, entry: str | None) -> Kernel:
    from tilekit.cli.emulate_arguments import CODE
    from tilekit.errors import ArgumentError

    if entry is not None:
        return module[entry]
    if len(module.kernels) != 1:
        legal = f"one of {', '.join(module.kernels)}" if module.kernels else _NO_KERNEL
        raise ArgumentError.of("--entry", None, legal=legal, nearest=next(iter(module.kernels), None), code=CODE)
    return module[module.kernels[0]]


def _dims(text: str, option: str) -> tuple[int, ...]:
    from tilekit.cli.emulate_arguments import CODE
    from tilekit.errors import ArgumentError

    if not re.fullmatch(r"\d{1,18}([,x]\d{1,18}){0,2}", text):
        numbers = re.findall(r"\d+", text)[:3]
        nearest = ",".join(numbers) or "1"
        raise ArgumentError.of(option, text, legal="one to three whole numbers as X,Y,Z", nearest=nearest, code=CODE)
    return tuple(int(part) for part in re.split("[,x]", text))


def _required_block(kernel: Any) -> tuple[int, ...]:
    from tilekit.cli.emulate_arguments import CODE
    from tilekit.errors import ArgumentError

    if _is_amd(kernel):
        if kernel.threads is None:
            legal = "threads of a workgroup, as the metadata does not say them"
            raise ArgumentError.of("--block", "", legal=legal, nearest="256", code=CODE)
        return (kernel.threads,)
    directives: dict[str, tuple[int, ...]] = kernel.function.directives
    if "reqntid" in directives:
        return directives["reqntid"]
    nearest = ",".join(map(str, directives.get("maxntid", (128,))))
    legal = f"threads of a CTA, as {kernel.name} does not say them with .reqntid"
    raise ArgumentError.of("--block", "", legal=legal, nearest=nearest, code=CODE)


def _outputs(args: Sequence[Argument], show: Sequence[int], save: Sequence[str]) -> list[tuple[int, Path | None]]:
    """(argument, file to save it to or None to print it), checked before anything runs."""
    from tilekit.cli.emulate_arguments import CODE, require_writable
    from tilekit.emulator import Buffer
    from tilekit.errors import ArgumentError

    buffers = [index for index, argument in enumerate(args) if isinstance(argument, Buffer)]
    legal = f"the number of a buffer among the arguments: {', '.join(map(str, buffers)) or 'there is none'}"
    nearest = buffers[-1] if buffers else None
    wanted: list[tuple[int, Path | None]] = []
    for index in show:
        if index not in buffers:
            raise ArgumentError.of("--print", index, legal=legal, nearest=nearest, code=CODE)
        wanted.append((index, None))
    for text in save:
        number, equals, path = text.partition("=")
        if number not in map(str, buffers) or not equals or not path:
            raise ArgumentError.of("--save", text, legal=f"N=FILE.npy, N {legal}", nearest=nearest, code=CODE)
        require_writable(Path(path), "--save")
        wanted.append((int(number), Path(path)))
    return wanted


# -- what came out ---------------------------------------------------------------------------------------------------


def _present(
    report: LaunchReport, args: Sequence[Argument], outputs: Sequence[tuple[int, Path | None]], as_json: bool
) -> None:
    import numpy as np

    from tilekit.cli.emulate_arguments import readable

    printed: dict[int, Any] = {}
    for index, path in outputs:
        values = readable(args[index].read())
        if path is None:
            printed[index] = values
        else:
            np.save(path, values)
    if as_json:
        facts = _facts(report)
        facts["printed"] = {str(index): values.tolist() for index, values in printed.items()}
        typer.echo(json.dumps(facts))
        return
    typer.echo(str(report))
    for index, values in printed.items():
        typer.echo(f"argument {index}:\n{values}")


def _facts(report: LaunchReport) -> dict[str, Any]:
    from dataclasses import asdict

    skipped = ("findings", "remarks", "statistics")
    facts: dict[str, Any] = {name: getattr(report, name) for name in report.__dataclass_fields__ if name not in skipped}
    facts["instructions"] = dict(report.instructions)
    facts["findings"] = [str(finding) for finding in report.findings]
    facts["remarks"] = [str(remark) for remark in report.remarks]
    facts["clean"] = report.clean
    if report.statistics is not None:
        facts["statistics"] = asdict(report.statistics)
    return facts


def _present_exploration(found: Exploration, as_json: bool) -> None:
    if not as_json:
        typer.echo(str(found))
        return
    failure = found.failure
    facts = {
        "kernel": found.kernel,
        "tries": found.tries,
        "schedules": found.schedules,
        "clean": found.clean,
        "different": found.different,
        "seconds": found.seconds,
        "failure": failure and {"seed": failure.seed, "schedule": failure.schedule, "message": str(failure)},
    }
    typer.echo(json.dumps(facts))


def _present_stop(session: Debugger, as_json: bool) -> None:
    if not session.stopped:
        assert session.report is not None
        text = f"the launch ended without coming there, after {session.steps:,} instructions\n{session.report}"
        typer.echo(json.dumps({"stopped": False, **_facts(session.report)}) if as_json else text)
        return
    registers = session.registers()
    if as_json:
        where = session.where
        facts = {
            "stopped": True,
            "steps": session.steps,
            "where": {"cluster": where.cluster, "cta": where.cta, "warp": where.warp, "role": where.role},
            "line": session.instruction.line,
            "text": session.instruction.text,
            "waits_for": where.waits_for,
            "registers": {name: values.tolist() for name, values in registers.items()},
            "warps": [str(warp) for warp in session.warps()],
            "barriers": [str(barrier) for barrier in session.barriers()],
            "in_flight": [str(operation) for operation in session.in_flight()],
        }
        typer.echo(json.dumps(facts))
        return
    typer.echo(f"{session}\n  registers")
    width = max(map(len, registers), default=0)
    for name, values in registers.items():
        typer.echo(f"    {name:{width}}  {_lanes(values)}")


def _lanes(values: np.ndarray[Any, Any]) -> str:
    """A register's lanes in few words: one value, an arithmetic series, or all of them."""
    import numpy as np

    first = values.flat[0]
    if (values == first).all():
        return f"{first} in every lane"
    if values.ndim == 1 and values.dtype.kind in "iu":
        steps = np.diff(values)  # of unsigned integers too: it wraps as they do
        if (steps == steps[0]).all():
            return f"{first} + {steps[0]} * lane"
    return " ".join(map(str, values.tolist()))
