"""Operands that TMA refuses: every address, pitch and batch pitch, read to the last element and not beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.matmul.matmul_case import DATA, Case, Kernel, Layout
from tests.matmul.matmul_check import check, over
from tests.matmul.matmul_data import inputs_of
from tests.matmul.matmul_generator import MAJORS
from tests.matmul.matmul_machine import Machine
from tests.matmul.matmul_reference import compare, expected_of
from tilekit import MatmulConfig, MatmulSpec
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, F32, DType
from tilekit.emulator import EmulatorError, MemoryFault
from tilekit.errors import ArgumentError, ConfigError, FindingWarning
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.targets import SM_90A
from tilekit.tile_io import cp_async
from tilekit.tile_io.cp_async import CopyWriter
from tilekit.tile_pipeline.mbarrier_sync import ThreadProducer

SMALL = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)
WIDE = MatmulConfig(tile=(128, 128), cluster=(1, 1), consumers=2)


@dataclass(frozen=True)
class Unaligned(Case):
    """A case in which A and B lie anywhere: `pads` and `leads` of the two are elements, and pitches are not rounded.

    Attributes
    ----------
    gaps
        Elements between the matrices of a batch, of A and of B.
    """

    gaps: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{super().__str__()}-g{self.gaps[0]}.{self.gaps[1]}" if any(self.gaps) else super().__str__()

    @property
    def a_layout(self) -> Layout:
        """Where A lies."""
        return self._layout(0, (self.m, self.k), self.kernel.majors[0] == "k")

    @property
    def b_layout(self) -> Layout:
        """Where B lies."""
        return self._layout(1, (self.k, self.n), self.kernel.majors[1] == "n")

    def _layout(self, index: int, shape: tuple[int, int], rows: bool) -> Layout:
        outer, inner = shape if rows else shape[::-1]
        pitch, batch = inner + self.pads[index], self.batches[index]
        strides = (pitch, 1) if rows else (1, pitch)
        if batch is None:
            return Layout(shape, strides, self.leads[index])
        return Layout((batch, *shape), (outer * pitch + self.gaps[index], *strides), self.leads[index])


def alignments() -> tuple[Unaligned, ...]:
    """Every lead and every pitch modulo 16 bytes, of A and of B, in every pair of majors; the last k-block is part."""
    cases = []
    for majors in MAJORS:
        for lead in range(8):
            m, n, k = 65 + lead, 71 - lead, 67 + 2 * lead
            pads = tuple((5 * lead + turn - inner) % 8 for turn, inner in enumerate(_inner(majors, m, n, k)))
            config = WIDE if lead == 5 else SMALL
            kernel = Kernel(majors=majors, out="f32", direct=lead % 2 == 1, config=config)
            n = n if kernel.direct else -(-n // 4) * 4
            cases.append(
                Unaligned(kernel, m, n, k, pads=(*pads, 0), leads=(lead, 7 - lead, 0), data=DATA[lead % 3], seed=lead)
            )
    return tuple(cases)


def every_alignment() -> tuple[Unaligned, ...]:
    """All leads with all pitches; for the GPU."""
    cases = []
    for majors in MAJORS:
        for lead in range(8):
            for pad in range(8):
                kernel = Kernel(majors=majors, direct=True)
                pads, leads = (pad, 7 - pad, 0), (lead, (3 * lead + pad) % 8, 0)
                cases.append(Unaligned(kernel, 193, 321, 401, pads=pads, leads=leads, data=DATA[pad % 3], seed=lead))
    return tuple(cases)


def _inner(majors: str, m: int, n: int, k: int) -> tuple[int, int]:
    """The contiguous extents of A and of B."""
    return k if majors[0] == "k" else m, n if majors[1] == "n" else k


def depths() -> tuple[Unaligned, ...]:
    """K from 1 on, and around the k-block; rows shorter than a piece, and parts of a piece at the end."""
    ks = (1, 2, 3, 5, 7, 9, 15, 17, 63, 65, 129, 191)
    return tuple(
        Unaligned(Kernel(majors=majors, direct=True, config=SMALL), 9 + k % 7, 13, k, data=DATA[k % 3], seed=k)
        for k in ks
        for majors in (("kn", "mk") if k > 3 else MAJORS)
    )


def batches() -> tuple[Unaligned, ...]:
    """Matrices of a batch that are an odd number of elements apart, so that each is shifted by another amount."""
    shapes: tuple[tuple[int | None, int | None], ...] = ((3, 3), (1, 3), (3, 1), (None, 2), (9, 9))
    return tuple(
        Unaligned(
            Kernel(majors=MAJORS[index % 4], batched=True, direct=True, config=SMALL),
            *(33 + index, 41, 71),
            batches=counts,
            pads=(index % 2, 2 * (index % 3), 0),
            leads=(index, 0, 0),
            gaps=(1 + index, 3),
            data=DATA[index % 3],
            seed=index,
        )
        for index, counts in enumerate(shapes)
    )


def eight_bits() -> tuple[Unaligned, ...]:
    """8-bit types from every byte on, with every pitch modulo 16."""
    return tuple(
        Unaligned(
            Kernel(a="e4m3", b="e5m2", out="f32", direct=lead % 3 == 0, config=SMALL),
            *(65, 72, 129 + lead),
            pads=((7 * lead) % 16, (5 * lead + 1) % 16, 0),
            leads=(lead, 15 - lead, 0),
            data=DATA[lead % 3],
            seed=lead,
        )
        for lead in (0, 1, 2, 3, 5, 8, 11, 15)
    )


def tf32() -> tuple[Unaligned, ...]:
    """f32 operands begin at multiples of 4 bytes."""
    return tuple(
        Unaligned(
            Kernel(a="f32", b="f32", out="f32", direct=lead == 1, config=SMALL),
            *(66, 68, 33 + lead),
            pads=(lead, 2 * lead % 3, 0),
            leads=(lead, 3 - lead, 0),
            data=DATA[lead % 3],
            seed=lead,
        )
        for lead in range(4)
    )


def one_aligned() -> tuple[Unaligned, ...]:
    """One operand by TMA, the other by threads: whichever, in any major."""
    cases = []
    for index, majors in enumerate(MAJORS * 2):
        m, n, k = 64 + 8 * (index % 3), 72, 136
        odd = (1, 0) if index < 4 else (0, 1)
        kernel = Kernel(majors=majors, config=SMALL if index % 2 else WIDE, out=("bf16", "f16", "f32")[index % 3])
        cases.append(Unaligned(kernel, m, n, k, pads=(*odd, 0), leads=(*odd, 0), data=DATA[index % 3], seed=index))
    return tuple(cases)


def configs() -> tuple[Unaligned, ...]:
    """Rings of every length, several warpgroups, shares of a sum, swapped operands, several tiles a CTA, functions."""
    chosen = [
        MatmulConfig((64, 64), (1, 1), 1, in_flight=0, stages=1),
        MatmulConfig((64, 64), (1, 1), 1, in_flight=0, stages=2),
        MatmulConfig((64, 64), (1, 1), 1, stages=2),
        MatmulConfig((64, 64), (1, 1), 1, stages=3),
        MatmulConfig((64, 64), (1, 1), 1, stages=5),
        MatmulConfig((64, 64), (1, 1), 1, stages=9),
        MatmulConfig((64, 64), (1, 1), 1, split_k=3),
        MatmulConfig((64, 96), (1, 1), 1, swap_ab=True),
        MatmulConfig((192, 64), (1, 1), 3),
        MatmulConfig((128, 160), (1, 1), 2),
        MatmulConfig((256, 64), (1, 1), 2, profile_tiles=2),
        None,
    ]
    return tuple(
        Unaligned(
            Kernel(majors=MAJORS[index % 4], bias="f32" if index % 2 else None, direct=True, config=config),
            *(77, 131, 459),
            pads=(index % 3, index % 5, 0),
            leads=(index % 8, (3 * index) % 8, 0),
            data=DATA[index % 3],
            seed=index,
        )
        for index, config in enumerate(chosen)
    )


def large() -> tuple[Unaligned, ...]:
    """Odd in every dimension; for the GPU."""
    return (
        Unaligned(Kernel(majors="kn", direct=True), 4095, 4097, 4093),
        Unaligned(Kernel(direct=True), 4097, 2047, 8191, leads=(1, 3, 0), data="coded_a"),
        Unaligned(Kernel(majors="mn", direct=True), 2049, 4095, 1023, leads=(5, 0, 0), data="coded_b"),
        Unaligned(Kernel(majors="mk"), 1022, 8192, 2046, data="normal"),
        Unaligned(Kernel(a="e4m3", b="e4m3", direct=True), 2047, 2049, 4095, leads=(3, 9, 0)),
        Unaligned(Kernel(majors="kn", batched=True, direct=True), 257, 255, 513, batches=(31, 31), gaps=(5, 1)),
    )


@pytest.mark.sampled(one_in=9)
@over(emulator=alignments(), cuda=every_alignment())
def test_alignments(machine: Machine, case: Case) -> None:
    """Whatever address and pitch are multiples of: exact, with NaN wherever a byte too many could be read."""
    check(machine, case)


@pytest.mark.sampled(one_in=9)
@over(emulator=depths(), cuda=depths())
def test_depths(machine: Machine, case: Case) -> None:
    """The last piece of a row is filled with zeros to the element."""
    check(machine, case)


@over(emulator=batches(), cuda=batches())
def test_batches(machine: Machine, case: Case) -> None:
    """Every matrix of a batch has a shift of its own."""
    check(machine, case)


@over(emulator=eight_bits(), cuda=eight_bits())
def test_eight_bits(machine: Machine, case: Case) -> None:
    """8-bit types begin at any byte."""
    check(machine, case)


@over(emulator=tf32(), cuda=tf32())
def test_tf32(machine: Machine, case: Case) -> None:
    """f32 operands are copied in pieces of one or two elements."""
    check(machine, case)


@over(emulator=one_aligned(), cuda=one_aligned())
def test_one_aligned(machine: Machine, case: Case) -> None:
    """What TMA can load, it loads, beside threads that copy the other operand."""
    check(machine, case)


@pytest.mark.sampled(one_in=9)
@over(emulator=configs(), cuda=configs())
def test_configs(machine: Machine, case: Case) -> None:
    """Copies keep pace with rings, warpgroups and schedules of every kind."""
    check(machine, case)


@over(cuda=large())
def test_large(machine: Machine, case: Case) -> None:
    """Problems that are odd in every dimension are right, tile for tile."""
    check(machine, case)


def test_a_residual_beside_copies(machine: Machine) -> None:
    """A residual that TMA could load is read by the storing threads where the load role copies."""
    case = Unaligned(Kernel(majors="kn", config=SMALL), 65, 72, 67, leads=(1, 0, 0))
    inputs = inputs_of(case)
    a, b = machine.place(inputs.a, case.a_layout), machine.place(inputs.b, case.b_layout)
    residual = np.random.default_rng(1).integers(-9, 9, (65, 72)).astype(BF16.numpy)
    placed, out = machine.place(residual), machine.place_output(BF16, case.out_layout)
    tilekit.matmul(a.array, b.array, out=out.array, residual=placed.array, beta=2.0, config=SMALL)
    expected = expected_of(case, inputs, machine)
    compare(out.read(), type(expected)(expected.value + 2 * residual.astype(np.float64), None, BF16))


@pytest.mark.parametrize("what", ["line", "outer"])
@pytest.mark.parametrize("majors", ["kk", "mn"])
def test_an_element_too_many_is_a_fault(monkeypatch: pytest.MonkeyPatch, majors: str, what: str) -> None:
    """The cases above lie at the edge of their memory: told of one element or row more, the emulator faults."""
    case = Unaligned(Kernel(majors=majors, config=SMALL), 60, 60, 65, leads=(3, 0, 0))
    inputs = inputs_of(case)
    a, b = _edge(inputs.a, case.a_layout), _edge(inputs.b, case.b_layout)
    assert tilekit.matmul(a, b, config=SMALL).shape == (60, 60)
    counted = getattr(cp_async, f"_{what}")
    monkeypatch.setattr(cp_async, f"_{what}", lambda matrix: counted(matrix) + 1)
    with pytest.raises(MemoryFault):
        tilekit.matmul(a, b, config=SMALL)


@pytest.mark.parametrize("broken", ["fence", "groups", "lanes", "handing over", None])
def test_each_step_of_handing_over_is_needed(monkeypatch: pytest.MonkeyPatch, broken: str | None) -> None:
    """Without the fence, the wait for copies, the lanes' meeting or the arrivals, the emulator ends with an error."""
    if broken == "fence":
        monkeypatch.setattr(ThreadProducer, "producer_commit", _hand_over_unfenced)
    elif broken == "groups":
        monkeypatch.setattr(CopyWriter, "wait", lambda self, w, pending: w.ptx.cp_async.wait(pending=pending + 2))
    elif broken == "lanes":
        monkeypatch.setattr(
            CopyWriter, "complete", lambda self, w, stage: [x.complete(w, stage) for x in self._loaders]
        )
    elif broken == "handing over":
        monkeypatch.setattr(ThreadProducer, "producer_commit", lambda self, w, stage: None)
    spec = MatmulSpec(out_dtype=F32, b_major="mn", a_load=2, b_load=2)
    kernel = MatmulKernel(spec, MatmulConfig((64, 64), (1, 1), 1, stages=6), SM_90A)  # `compile` would remember it
    case = Unaligned(Kernel(majors="kn", out="f32"), 64, 64, 321, leads=(3, 1, 0))
    inputs = inputs_of(case)
    plan = kernel.bind(_edge(inputs.a, case.a_layout), _edge(inputs.b, case.b_layout))
    if broken is None:
        np.testing.assert_array_equal(plan(), inputs.a.astype(np.float32) @ inputs.b.astype(np.float32))
    else:
        with pytest.raises((EmulatorError, FindingWarning)):
            plan()


def _hand_over_unfenced(producer: ThreadProducer, w: Writer, stage: Value) -> None:
    w.warp_sync()
    w.ptx.mbarrier.arrive(bar=producer._sync.full.at(w, stage), active=producer._first_lane)


def _edge(values: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """The array, laid out as said."""
    reach = sum((extent - 1) * stride for extent, stride in zip(layout.shape, layout.strides, strict=True)) + 1
    memory = np.zeros(layout.lead + reach + 128, values.dtype)
    first = (-memory.ctypes.data % 256) // memory.itemsize + layout.lead
    size = values.itemsize
    view = np.ndarray(layout.shape, values.dtype, memory, first * size, [stride * size for stride in layout.strides])
    view[...] = values
    return view


@pytest.mark.parametrize("width", [8, 4, 2])
def test_a_kernel_takes_what_is_aligned_at_least_as_it_says(width: int) -> None:
    """A kernel built for multiples of so many bytes takes these and better ones, and refuses worse ones by name."""
    kernel = tilekit.compile(MatmulSpec(out_dtype=F32, a_load=width, b_load="tma"), config=SMALL)
    b = np.eye(64, dtype=ml_dtypes.bfloat16).T
    for lead in (0, 8, 4, 2, 1):
        a = np.zeros((64, 128), ml_dtypes.bfloat16)
        a = a.reshape(-1)[(-a.ctypes.data % 256) // 2 :][: 40 * 80].reshape(40, 80)[:, lead : lead + 64]
        a[...] = np.arange(64)
        if 2 * lead % 16 and (2 * lead) % width:
            with pytest.raises(ArgumentError, match=rf"a_load={2 * lead & -2 * lead}\).*TK-MM-016"):
                kernel.bind(a, b)
        else:
            np.testing.assert_array_equal(kernel.bind(a, b)(), a.astype(np.float32))
    plain = tilekit.compile(MatmulSpec(out_dtype=F32), config=SMALL)
    with pytest.raises(ArgumentError, match=r"multiples of 16; build the kernel with MatmulSpec\(a_load=2\)"):
        plain.bind(a, b)


@pytest.mark.parametrize(
    ("dtype", "load", "words"),
    [(BF16, 1, "'tma' or 8, 4, 2 bytes"), (BF16, 16, "a_load=16"), (E4M3, "ldg", "'tma' or 8, 4, 2, 1 bytes")],
)
def test_loads_that_do_not_exist(dtype: DType, load: Any, words: str) -> None:
    """A load is by TMA, or in multiples of bytes that hold whole elements."""
    with pytest.raises(ArgumentError, match=words) as caught:
        MatmulSpec(dtype, dtype, a_load=load)
    assert caught.value.code == "TK-MM-024"


def test_what_does_not_go_with_copies() -> None:
    """A staged residual, groups, and Blackwell are refused by name; so is what no copy fits."""
    with pytest.raises(ArgumentError, match="nearest: store='direct'") as caught:
        MatmulSpec(functions=tilekit.ElementwiseSpec(residual=BF16), b_load=2)
    assert caught.value.code == "TK-MM-025"
    with pytest.raises(ArgumentError, match="a_load=2") as caught:
        tilekit.compile(MatmulSpec(groups="ends", a_load=2))
    assert caught.value.code == "TK-MM-022"
    with pytest.raises(ArgumentError, match="b has an address") as caught:
        tilekit.compile(MatmulSpec(b_load=4), "sm_100a")
    assert caught.value.code == "TK-MM-013"


@pytest.mark.parametrize(
    ("config", "loads", "nearest"),
    [
        (MatmulConfig(tile=(128, 128), cluster=(1, 2)), (2, "tma"), "cluster=(1, 1)"),
        (MatmulConfig(tile=(128, 128), cluster=(1, 1), k_group=2), ("tma", 8), "k_group=1"),
        (MatmulConfig(tile=(128, 80), cluster=(1, 1)), (2, 2), "tile=(128, 96)"),
        (MatmulConfig(tile=(128, 24), cluster=(1, 1)), (2, 8), "tile=(128, 32)"),
    ],
)
def test_rules(config: MatmulConfig, loads: tuple[Any, Any], nearest: str) -> None:
    """A config that copies cannot keep to is refused with the nearest one that they can."""
    with pytest.raises(ConfigError, match="nearest: " + nearest.replace("(", r"\(").replace(")", r"\)")):
        MatmulKernel(MatmulSpec(out_dtype=F32, a_load=loads[0], b_load=loads[1]), config, SM_90A)


def test_explain_says_how_operands_are_copied() -> None:
    """The page names copies and shifts, who arrives, and the bytes that only the copy engine brings."""
    page = tilekit.compile(MatmulSpec(a_load=2, b_load=8), config=SMALL).explain()
    assert "copies       a: 64 lines of 128 B, 16 B at once, then shifted by a multiple of 2 B" in page
    assert "copies       b: 64 lines of 128 B, 8 B at once\n" in page
    assert "inputs.a_tails" in page
    (line,) = (line for line in page.splitlines() if line.startswith("inputs.full"))
    assert line.split()[1:] == ["4", "-", "load", "mma"]
    page = tilekit.compile(MatmulSpec(b_load=8), config=SMALL).explain()
    (line,) = (line for line in page.splitlines() if line.startswith("inputs.full"))
    assert line.split()[1:] == ["4", "8192", "load", "mma"]
