"""Every family is tuned by one mechanism: at a first call, by the command, and in the process that measures."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.bench.simulated import SimulatedMachine
from tilekit.arrays import ArrayView, c_strides
from tilekit.bench.attention import AttentionWorkload
from tilekit.bench.blockwise import BlockwiseWorkload, GroupedBlockwiseWorkload
from tilekit.bench.conv2d import ConvWorkload
from tilekit.bench.gemv import GemvWorkload
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.row_groups import parse_groups, spread
from tilekit.bench.scaled import ScaledWorkload
from tilekit.bench.workload import MatmulWorkload
from tilekit.cli.app import app
from tilekit.dtypes import BF16, E4M3, F32, S32, UE8M0, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
from tilekit.kernels.blockwise.arguments import BlockwiseArguments, GroupedBlockwiseArguments
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.dispatch import select
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.grouped.arguments import GroupedArguments
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.registry import families
from tilekit.runtime import driver
from tilekit.settings import settings
from tilekit.targets import SM_90A
from tilekit.targets import target as target_named
from tilekit.tuning import first_call, lookup, tuner, worker
from tilekit.tuning.table import Measurement, Problem, TunedTable, choices_of
from tilekit.tuning.workloads import extents, from_values

LAST = """
import json, sys
configs = json.load(sys.stdin)["configs"]
for index, _ in enumerate(configs):
    print(json.dumps({"index": index, "seconds": (9 - index) * 1e-6}), flush=True)
"""
"""The last candidate is the quickest."""


def view(number: int, shape: tuple[int, ...], dtype: DType = BF16, *, turned: bool = False) -> ArrayView:
    """An array on a GPU that is not here, C-ordered, or with its last two dimensions exchanged."""
    strides = c_strides(shape)
    if turned:
        shape, strides = (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    return ArrayView(number << 40, shape, strides, dtype, ("cuda", 0), "torch", None)


def product(m: int) -> MatmulArguments:
    """Rows times the weights of a linear layer."""
    return MatmulArguments.parse(view(1, (m, 512)), view(2, (256, 512), turned=True), out=view(3, (m, 256)))


def grouped() -> GroupedArguments:
    """Groups behind each other."""
    a, b = view(1, (300, 256)), view(2, (4, 128, 256), turned=True)
    return GroupedArguments.parse(a, b, view(4, (4,), S32), out=view(3, (300, 128)))


def counted() -> GroupedArguments:
    """Groups that begin apart."""
    a, b = view(1, (4, 128, 256)), view(2, (4, 256, 128))
    return GroupedArguments.parse(a, b, counts=view(4, (4,), S32), out=view(3, (4, 128, 128)))


def blockwise() -> BlockwiseArguments:
    """Scales of A along K, as torch makes them."""
    a, b, out = view(1, (96, 256), E4M3), view(2, (128, 256), E4M3, turned=True), view(3, (96, 128))
    return BlockwiseArguments.parse(a, b, view(4, (96, 2), F32), view(5, (1, 2), F32), out=out)


def grouped_blockwise() -> GroupedBlockwiseArguments:
    """Groups with scales of blocks."""
    a, b = view(1, (3, 64, 256), E4M3), view(2, (3, 128, 256), E4M3, turned=True)
    scales = {"scale_a": view(4, (3, 2, 64), F32, turned=True), "scale_b": view(5, (3, 1, 2), F32)}
    out = view(3, (3, 64, 128))
    return GroupedBlockwiseArguments.parse(a, b, counts=view(6, (3,), S32), out=out, **scales)


def block_scaled() -> BlockScaledArguments:
    """MXFP8, with scales as the tensor core reads them."""
    a, b, out = view(1, (128, 256), E4M3), view(2, (128, 256), E4M3, turned=True), view(3, (128, 128))
    laid = [view(number, (1, 2, 32, 4, 4), UE8M0) for number in (4, 5)]
    return BlockScaledArguments.parse(a, b, *laid, out=out)


def convolution() -> ConvArguments:
    """Images with filters of nine places, every other pixel."""
    x, w, out = view(1, (2, 14, 14, 64)), view(2, (64, 3, 3, 64)), view(3, (2, 7, 7, 64))
    x, w, out = (
        ArrayView(
            v.address,
            tuple(v.shape[i] for i in (0, 3, 1, 2)),
            tuple(v.strides[i] for i in (0, 3, 1, 2)),
            BF16,
            v.device,
            "torch",
            None,
        )
        for v in (x, w, out)
    )
    return ConvArguments.parse(x, w, stride=2, padding=1, out=out)


def attention(queries: int = 300, value_dim: int = 128, **masks: Any) -> AttentionArguments:
    """Heads of 128 in groups of four; (B, H, S, D) memory."""

    def heads(number: int, positions: int, count: int, elements: int) -> ArrayView:
        shape = 2, positions, count, elements
        lies = view(number, (2, count, positions, elements)).strides
        return replace(view(number, shape), strides=(lies[0], lies[2], lies[1], lies[3]))

    q, k, v = heads(1, queries, 8, 128), heads(2, 700, 2, 128), heads(3, 700, 2, value_dim)
    return AttentionArguments.parse(q, k, v, out=heads(4, queries, 8, value_dim), **masks)


CALLS: dict[str, tuple[Callable[[], Any], str, tuple[int, int]]] = {
    "matmul": (lambda: product(100), "matmul", (9, 0)),
    "gemv": (lambda: product(3), "gemv", (9, 0)),
    "groups": (grouped, "grouped_matmul", (9, 0)),
    "groups apart": (counted, "grouped_matmul", (9, 0)),
    "blockwise": (blockwise, "blockwise", (9, 0)),
    "groups blockwise": (grouped_blockwise, "grouped_blockwise", (9, 0)),
    "block-scaled": (block_scaled, "block_scaled", (10, 0)),
    "conv2d": (convolution, "conv2d", (9, 0)),
    "attention": (attention, "attention", (9, 0)),
    "attention, causal": (lambda: attention(3000, causal=True), "attention", (9, 0)),
    "attention, a window": (lambda: attention(window=(9, None), softcap=20.0, value_dim=64), "attention", (9, 0)),
    "attention, one query": (lambda: attention(1), "attention", (9, 0)),
    "attention, sm_100a": (attention, "attention", (10, 0)),
    "sm_80": (lambda: product(100), "matmul", (8, 0)),
    "sm_80, groups": (grouped, "grouped_matmul", (8, 0)),
}


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[tuple[int, int]], list[Any]]:
    """Make a GPU of a capability, with empty tables; return the list of processes that are started on it."""
    monkeypatch.setattr(first_call, "_timed", set())
    made: dict[Any, TunedTable] = {}

    def table_of(device: str, target: Any) -> TunedTable:
        return made.setdefault((device, target), TunedTable(device, target, tmp_path))

    for module in (first_call, lookup, tuner):
        monkeypatch.setattr(module, "table_of", table_of)
    monkeypatch.setattr(driver, "why_unavailable", lambda: None)

    def on(capability: tuple[int, int]) -> list[Any]:
        device = SimpleNamespace(name="Simulated GPU", sms=132, compute_capability=capability)
        monkeypatch.setattr(driver, "devices", lambda: [device])
        processes: list[Any] = []

        def start(_command: list[str]) -> subprocess.Popen[str]:
            processes.append(_last(_command))
            return processes[-1]

        monkeypatch.setattr(tuner, "_start", start)
        return processes

    return on


def _last(_command: list[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", LAST], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize("name", CALLS)
def test_a_first_call_times_the_best_few_of_its_family(
    name: str, tables: Callable[[tuple[int, int]], list[Any]], tmp_path: Path
) -> None:
    """The last of the model's best few, which the process says is the quickest, is kept and taken from then on."""
    make, family, capability = CALLS[name]
    processes = tables(capability)
    call = make()
    picked = select(call).kernel
    assert families()[family].arguments is type(call)
    assert select(call, first_call.tuned_or_timed).kernel is picked
    assert not processes  # off by default
    with settings.override(tuning="first call"):
        chosen = select(call, first_call.tuned_or_timed).kernel
    assert len(processes) == 1
    (line, *others) = (json.loads(line) for line in next(tmp_path.iterdir()).read_text().splitlines())
    assert 1 <= len(others) < first_call.CANDIDATES
    choices = choices_of(line["family"])
    first = {name: tuple(v) if isinstance(v, list) else v for name, v in line["config"].items()}
    assert str(choices.config(first, call.target)) == str(picked.config)
    assert line["config"] != others[-1]["config"]
    assert chosen.config != picked.config
    assert select(call, lookup.tuned_config).kernel is chosen
    with settings.override(tuning="first call"):
        assert select(make(), first_call.tuned_or_timed).kernel is chosen
    assert len(processes) == 1
    again = TunedTable("Simulated GPU", call.target, tmp_path)
    assert again.passed_over == 0
    assert len(again) == 1


def test_what_fails_leaves_each_family_to_its_model(
    tables: Callable[[tuple[int, int]], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that cannot be started: a warning, once, and the model's choice."""
    tables((9, 0))

    def refuse(_command: list[str]) -> subprocess.Popen[str]:
        raise OSError("no more processes")

    monkeypatch.setattr(tuner, "_start", refuse)
    for call in (product(3), grouped()):
        with settings.override(tuning="first call"):
            with pytest.warns(RuntimeWarning, match="no more processes"):
                assert select(call, first_call.tuned_or_timed).kernel is select(call).kernel
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert select(call, first_call.tuned_or_timed).kernel is select(call).kernel


WORKLOADS: dict[str, tuple[Any, str]] = {
    "gemv": (GemvWorkload(3, 64, 130, padded=False), "sm_90a"),
    "groups apart": (GroupedWorkload((3, 20), 64, 64, rows=32, b_major="mn"), "sm_90a"),
    "groups": (GroupedWorkload((3, 0, 70), 64, 64), "sm_90a"),
    "blockwise": (BlockwiseWorkload(20, 64, 128, scales_major="k"), "sm_90a"),
    "groups blockwise": (GroupedBlockwiseWorkload((20, 9), 64, 128), "sm_90a"),
    "mxfp8": (ScaledWorkload(20, 64, 64, a_dtype=E4M3, b_dtype=E4M3), "sm_100a"),
    "nvfp4": (ScaledWorkload(20, 64, 128, scaled="nvfp4"), "sm_100a"),
    "conv2d": (ConvWorkload((1, 4, 4, 64), (64, 3, 3)), "sm_90a"),
    "attention": (AttentionWorkload.parse("1x40x70 h2/1 d64/32 causal"), "sm_90a"),
    "attention, one query": (AttentionWorkload.parse("2x1x200 h2/1 d64 w90, c20"), "sm_100a"),
    "sm_80": (MatmulWorkload(30, 40, 50), "sm_80"),
}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("gemv", "nvfp4", "attention") else pytest.param(name, marks=pytest.mark.breadth)
        for name in WORKLOADS
    ],
)
def test_a_worker_measures_each_family(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request survives JSON, the kernel is bound and computes right (emulated), and the machine's clock counts."""
    workload, chip = WORKLOADS[name]
    target, machine = target_named(chip), SimulatedMachine()
    monkeypatch.setattr(worker, "OPERAND_BYTES", 1)
    monkeypatch.setattr(machine, "capture", lambda work: lambda: machine.spend(6e-6))
    spec = workload.spec_on(chip)
    problem = Problem.of(spec, **extents(workload, spec))
    best = choices_of(problem.family).ranked(spec, target, **problem.shape, read=workload.read)[:1]
    request = json.loads(json.dumps(tuner.request(workload, target, best)))
    assert from_values(request["family"], request["workload"]) == workload
    found = list(worker.answers(machine, request))
    assert found == [{"index": 0, "seconds": pytest.approx(3e-6)}] * (1 + worker.ROUNDS)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tables: Callable[[tuple[int, int]], list[Any]]) -> list[Any]:
    """A GPU of capability 9.0 on which the last config measured is the quickest; the workloads that were measured."""
    seen: list[Any] = []

    def measure(workload: Any, chip: Any, configs: list[Any], **_: Any) -> list[Measurement]:
        seen.append((workload, chip.name, configs))
        return [Measurement(config, (100 - index) * 1e-6) for index, config in enumerate(configs)]

    tables((9, 0))
    monkeypatch.setattr(tuner, "measure", measure)
    return seen


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("words", "kind", "chip"),
    [
        (["gemv", "--shape", "4x512x512"], GemvWorkload, "sm_90a"),
        (["matmul", "--shape", "8x512x512"], GemvWorkload, "sm_90a"),
        (["matmul", "--shape", "8x512x512", "--b-major", "mn"], MatmulWorkload, "sm_90a"),
        (["grouped_matmul", "--shape", "G4 512x256x128", "--b-major", "mn"], GroupedWorkload, "sm_90a"),
        (["grouped_matmul", "--shape", "7,90,0x256x128", "--dtype", "e4m3"], GroupedWorkload, "sm_90a"),
        (["blockwise", "--shape", "64x256x512"], BlockwiseWorkload, "sm_90a"),
        (["grouped_blockwise", "--shape", "G4 512x256x256"], GroupedBlockwiseWorkload, "sm_90a"),
        (["conv2d", "--shape", "2x14x14x64 64x3x3 p1"], ConvWorkload, "sm_90a"),
        (["attention", "--shape", "2x512 h8/2 d128 causal"], AttentionWorkload, "sm_90a"),
        (["matmul", "--target", "sm_80", "--shape", "128x256x512"], MatmulWorkload, "sm_80"),
    ],
)
def test_the_command_tunes_each_family(words: list[str], kind: type[Any], chip: str, measured: list[Any]) -> None:
    """The model's choice is measured first, the quickest is kept, and variants of it are tried."""
    made = CliRunner().invoke(app, ["tune", *words, "--candidates", "3", "--json"])
    assert made.exit_code == 0, made.output
    workload, target, configs = measured[0]
    assert type(workload) is kind
    assert target == chip
    (facts,) = json.loads(made.output)
    groups = len(workload.sizes) if "sizes" in dir(workload) else 0
    assert facts["groups"] == (workload.kv_heads if kind is AttentionWorkload else groups)
    rows = facts["measured"]
    assert sum(row["picked"] for row in rows) == 1
    assert next(row["config"] for row in rows if row["picked"]) == str(configs[0])
    assert len(rows) > len(configs)  # variants
    if kind is GemvWorkload:
        assert all(isinstance(config, GemvConfig) for config in configs)


def test_block_scaled_products_are_tuned_where_the_chip_has_them(
    measured: list[Any], tables: Callable[[tuple[int, int]], list[Any]]
) -> None:
    """By format; on Hopper the chips that have it are named."""
    words = ["tune", "block_scaled", "--shape", "128x256x256", "--dtype", "nvfp4", "--candidates", "2"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code != 0
    assert "sm_100a" in made.output
    tables((10, 0))
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert isinstance(measured[0][0], ScaledWorkload)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["grouped_matmul", "--shape", "512x256"], "G8 4096x7168x2048"),
        (["grouped_matmul", "--shape", "G0 512x256x128"], "G8 4096x7168x2048"),
        (["grouped_matmul", "--shape", "0,0x256x128"], "not all zero"),
        (["grouped_matmul", "--shape", "G2 64x64x64", "--dtype", "e4m3,e5m2"], "groups' operands"),
        (["gemv", "--shape", "9x64x64"], "matmul for this product"),
        (["attention", "--shape", "512x256x64"], "4x4096 h32/8 d128 causal"),
        (["attention", "--shape", "2x512 h8 d128", "--b-major", "mn"], "another family"),
        (["grouped", "--shape", "G2 64x64x64"], "grouped_matmul"),
        (["matmul", "--target", "sm_81", "--shape", "64x64x64"], "sm_80"),
    ],
)
def test_wrong_words(words: list[str], says: str) -> None:
    """Shapes and families that there are not are refused with what is legal."""
    made = CliRunner().invoke(app, ["tune", *words])
    assert made.exit_code != 0
    assert says in " ".join(made.output.split())


def test_sizes_of_groups() -> None:
    """They add up, grow, and are those that are named."""
    for rows, groups in ((1000, 6), (34560, 8), (3, 8), (1, 1)):
        sizes = spread(rows, groups)
        assert sum(sizes) == rows
        assert len(sizes) == groups
        assert sizes[-1] == max(sizes)
    assert spread(1000, 6)[-1] > 5 * spread(1000, 6)[0]
    assert parse_groups("3,0,5x7x8") == ((3, 0, 5), 7, 8)
    assert parse_groups("G3 60x7x8") == (spread(60, 3), 7, 8)
    with pytest.raises(ArgumentError, match="legal: G8"):
        parse_groups("G3x60x7x8")


def test_lines_of_another_chip_on_the_same_device_are_its_own(tmp_path: Path) -> None:
    """Kernels for sm_80 run on later GPUs: their times and those of the GPU's own kernels are in one file."""
    chips = [target_named(name) for name in ("sm_80", "sm_90a")]
    spec, shape = MatmulSpec(), {"m": 256, "n": 512, "k": 128, "batches": 1}
    best = [choices_of("matmul").ranked(spec, chip, **shape)[0] for chip in chips]
    for chip, config in zip(chips, best, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            TunedTable("x", chip, tmp_path).add(Problem.of(spec, **shape), [Measurement(config, 1e-6)])
    for chip, config in zip(chips, best, strict=True):
        assert TunedTable("x", chip, tmp_path).best(Problem.of(spec, **shape)) == config
    assert len(list(tmp_path.iterdir())) == 1


def _tune_at_once(folder: Path, barrier: Any, found: Any) -> None:
    """A process of its own that tunes at its first call, at the same time as others."""
    table = TunedTable("x", SM_90A, folder)
    tuner._start = _last
    for module in (first_call, lookup):
        module.table_of = lambda _device, _target: table  # type: ignore[attr-defined]
    shape = {"m": 256, "n": 512, "k": 128, "batches": 1}
    barrier.wait()
    with settings.override(tuning="first call"):
        found.put(str(first_call.tuned_or_timed(MatmulSpec(), SM_90A, "x", **shape)))


def test_two_processes_that_tune_at_once(tmp_path: Path) -> None:
    """Both find the same, and the file is whole."""
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_tune_at_once, args=(tmp_path, barrier, found)) for _ in range(2)]
    for process in processes:
        process.start()
    texts = {found.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    shape = {"m": 256, "n": 512, "k": 128, "batches": 1}
    ranked = choices_of("matmul").ranked(MatmulSpec(), SM_90A, **shape)[: first_call.CANDIDATES]
    assert texts == {str(ranked[-1])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = TunedTable("x", SM_90A, tmp_path)
    assert table.best(Problem.of(MatmulSpec(), **shape)) == ranked[-1]
    assert isinstance(table.best(Problem.of(MatmulSpec(), **shape)), MatmulConfig)
    assert len(table.path.read_text().splitlines()) == 2 * first_call.CANDIDATES
