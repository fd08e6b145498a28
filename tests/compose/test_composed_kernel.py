"""Composed kernels as their callers see them: operands, arrays, inspection, and errors before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import upright
from composed import BF16, integers

import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.emulator import RaceError
from tilekit.errors import ArgumentError, TilekitError
from tilekit.runtime import driver

ADD = (tk.Input("x", tk.F32, "m"), tk.Input("y", tk.F32, "m"), tk.Output("out", tk.F32, "m"))


class OneCta:
    """A schedule of one CTA."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """One cluster."""
        return tk.Schedule(clusters=1, tiles=1)


@tk.kernel(*ADD, target="sm_90a", threads=64)
def add(w: tk.Writer) -> OneCta:
    """Add two vectors, with neither a matrix nor a tile."""
    length = w.parameter("length", tk.registers.U32, lambda call: call.m)
    x, y, out = (w.parameter(o.name, tk.registers.GMEM, lambda call, o=o: call.address(o.name)) for o in ADD)
    for index in w.range(length, start=w.thread(), step=w.threads, name="element"):
        places = [(start + w.widen_multiply(index, 4)).retyped(tk.registers.GMEM) for start in (x, y, out)]
        one, other = (w.isa.memory.load_global_scalar(address=place) for place in places[:2])
        w.isa.memory.store_global_f32(address=places[2], value=one + other, valid=index < length)
    return OneCta()


X, Y = (np.arange(100, dtype=np.float32) * step for step in (1, 3))


def product() -> tk.ComposedKernel:
    """A plain product of bf16."""
    return upright.matmul(epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(lambda w, x: x)), None))


def test_any_kernel_is_called_with_arrays() -> None:
    """Vectors alone will do; outputs are made, or taken by name; the function's docstring is the kernel's."""
    np.testing.assert_array_equal(add(X, Y), X + Y)
    out = np.zeros(100, np.float32)
    assert add(y=Y, x=X, out=out) is out
    np.testing.assert_array_equal(out, X + Y)
    assert add.__doc__ == "Add two vectors, with neither a matrix nor a tile."
    assert add.name == "add"
    assert repr(add) == "<add(x, y, out) for sm_90a>"


def test_the_function_is_traced_once() -> None:
    """Text and launches come of one run of the function, however often they are asked for."""
    runs = []

    @tk.kernel(*ADD, target="sm_90a", threads=64)
    def counted(w: tk.Writer) -> Any:
        runs.append(1)
        return add._compose(w)

    assert "entry counted" in counted.ptx
    counted(X, Y)
    counted(X, Y)
    assert len(runs) == 1


def test_a_bound_launch_uses_the_arrays_again() -> None:
    """A launch reads its arrays at each call, and keeps the emulator's report of the latest."""
    x = X.copy()
    launch = add.bind(x, Y, seed=3)
    first = launch().copy()
    x += 1
    np.testing.assert_array_equal(launch(), first + 1)
    assert launch.report.clean


def test_the_emulators_options_are_passed_on() -> None:
    """`emulator` takes options of the device; one that it does not have is an error of this call."""
    launch = add.bind(X, Y, emulator={"check": "off"})
    launch()
    assert "check off" in str(launch.report)
    for wrong in ({"check": "some"}, {"chek": "off"}):
        with pytest.raises(ArgumentError, match="TK-COMP-002"):
            add.bind(X, Y, emulator=wrong)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ((tk.Input("x", tk.F32, "m"),), "at least one Output"),
        ((*ADD, tk.Input("x", tk.F32, "m")), "given 'x'; legal: each name once"),
        ((*ADD, tk.Output("z", tk.F32, "j")), "z's shape: given 'j'; legal: letters of inputs, not 'j'; or own='j'"),
        (
            (tk.Input("x", tk.F32, "bmk"), tk.Output("y", tk.F32, "lmk")),
            "y's shape: given 'lmk'; legal: 'b'",
        ),
        (
            (tk.Input("x", tk.F32, "bmk"), tk.Output("y", tk.F32, "mb")),
            "y's shape: given 'mb'; legal: 'b'",
        ),
        ((*ADD, "z"), r"Input\(...\) and Output\(...\)"),
    ],
)
def test_operands_that_cannot_be_together(operands: Any, message: str) -> None:
    """A kernel's operands are checked when it is declared, before its function runs."""
    with pytest.raises(ArgumentError, match=message) as caught:
        tk.kernel(*operands, target="sm_90a", threads=64)(lambda w: OneCta())
    assert caught.value.code == "TK-COMP-001"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("2x", "m"),
        ("seed", "m"),
        ("emulator", "m"),
        ("x", ""),
        ("x", "mm"),
        ("x", "kmn"),
        ("x", "lbmk"),
        ("x", "m1"),
        (None, "m"),
        ("x", ("m", "k")),
    ],
)
def test_an_operand_that_cannot_be(name: Any, shape: Any) -> None:
    """A name is a Python name that means nothing else in a launch, a shape one to three letters."""
    with pytest.raises(ArgumentError, match="TK-COMP-001"):
        tk.Input(name, tk.F32, shape)


def test_an_operands_type_is_found_by_any_name() -> None:
    """Types are given as elsewhere; an unknown one is an error of the declaration."""
    assert tk.Input("x", np.int8, "m").dtype is tk.S8  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="TK-DTYPE-001"):
        tk.Input("x", "bfloat", "m")  # type: ignore[arg-type]


def test_an_unknown_target() -> None:
    """A target that no kernel is built for is refused where the kernel is declared."""
    with pytest.raises(ArgumentError, match="TK-TARGET-001"):
        tk.kernel(*ADD, target="sm_91", threads=64)(lambda w: OneCta())


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        ((X,), {}, "add takes x, y, and by name x, y, out; missing: y"),
        ((X, Y, X), {}, "given 3 arrays without a name"),
        ((X, Y), {"x": X}, "x was given twice"),
        ((X, Y), {"oud": X}, "there is no oud; nearest: out"),
        ((X, Y), {"device": "gpu"}, "device: given 'gpu'"),
    ],
)
def test_arrays_that_do_not_match_the_operands(arrays: Any, named: Any, message: str) -> None:
    """Too few, too many and unknown names are said with what the kernel takes."""
    with pytest.raises(ArgumentError, match=message) as caught:
        add.bind(*arrays, **named)
    assert caught.value.code == "TK-COMP-002"


A, B = integers(np.random.default_rng(1), 3, 20, 16), integers(np.random.default_rng(2), 3, 24, 16)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((A.astype(np.float16), B), r"a is declared as bf16 of shape \(m, k\); given f16 of shape \(20, 16\)"),
        ((A[0], B), r"a is declared as bf16 of shape \(m, k\); given bf16 of shape \(16,\)"),
        ((A, B[:, :8]), "k is 8 in b and 16 in a; nearest: 16"),
        ((A, np.asfortranarray(B)), r"given strides \(1, 24\).*last dimension must be contiguous"),
        ((A[::-1], B), "no other may run backwards"),
        ((A[:0], B), "m = 0 leaves d without elements.*Nearest: 1"),
    ],
)
def test_arrays_that_are_not_as_declared(arrays: Any, message: str) -> None:
    """Type, rank, extents and strides are checked against the declaration, by name."""
    with pytest.raises(ArgumentError, match=message) as caught:
        product()(*arrays)
    assert caught.value.code == "TK-COMP-003"


def test_outputs_are_checked() -> None:
    """An output of another shape, one that overlaps an input or another output, and one read-only are refused."""
    kernel, d = product(), np.zeros((20, 24), BF16)
    with pytest.raises(ArgumentError, match="TK-COMP-003"):
        kernel(A, B, d=d[:, :16])
    square = integers(np.random.default_rng(3), 3, 16, 16)
    with pytest.raises(ArgumentError, match=r"d overlaps a .*TK-ARRAY-009"):
        kernel(square, square.copy(), d=square)

    @tk.kernel(*ADD, tk.Output("second", tk.F32, "m"), target="sm_90a", threads=64)
    def twins(w: tk.Writer) -> OneCta:
        return OneCta()

    both = np.zeros(100, np.float32)
    with pytest.raises(ArgumentError, match=r"second overlaps out .*TK-ARRAY-009"):
        twins.bind(X, Y, out=both, second=both)
    d.setflags(write=False)
    with pytest.raises(ArgumentError, match=r"read-only.*TK-ARRAY-008"):
        kernel(A, B, d=d)


def misaligned(rows: int, columns: int) -> Any:
    """Rows that begin at no multiple of 16 bytes."""
    return np.ones((rows, columns + 1), BF16)[:, :columns]


def test_what_a_component_cannot_take_is_its_error() -> None:
    """Rows that TMA cannot walk over are refused by the loader, before anything runs."""
    with pytest.raises(ArgumentError, match=r"(?s)a cannot be described to the copy engine.*multiple of 16.*TK-MM-015"):
        product().bind(misaligned(20, 16), B)


def forgetful(w: tk.Writer) -> Any:
    """Declares a parameter and does not say what it will be."""
    w.parameter("length", tk.registers.U32)
    return OneCta()


def curious(w: tk.Writer) -> Any:
    """Asks for what the call does not have."""
    w.parameter("length", tk.registers.GMEM, lambda call: call.address("z"))
    return OneCta()


def deep(w: tk.Writer) -> Any:
    """Asks for a K, of which the operands have none."""
    w.parameter("length", tk.registers.U32, lambda call: call.m * call.k)
    return OneCta()


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (forgetful, r"'length' does not say how its value follows.*w.parameter\('length', u32, lambda call"),
        (curious, "follows from the address 'z', which this call does not have; it has x, y, out"),
        (deep, "follows from the number 'k', which this call does not have; it has m"),
    ],
)
def test_parameters_say_how_they_bind(compose: Callable[[tk.Writer], Any], message: str) -> None:
    """A parameter that follows from nothing, or from what is not there, is named before anything runs."""
    kernel = tk.kernel(*ADD, target="sm_90a", threads=64)(compose)
    with pytest.raises(ArgumentError, match=message) as caught:
        kernel(X, Y)
    assert caught.value.code == "TK-PAR-003"


@pytest.mark.parametrize("value", [None, 1.5, -1])
def test_a_parameter_s_wrong_value_is_named(value: Any) -> None:
    """What a function of the call returns and the parameter cannot be is refused with the parameter's name."""

    def wrong(w: tk.Writer) -> Any:
        w.parameter("rows", tk.registers.U32, lambda call: value)
        return OneCta()

    with pytest.raises(ArgumentError, match=rf"kernel parameter 'rows': u32 parameter: given {value}") as caught:
        tk.kernel(*ADD, target="sm_90a", threads=64)(wrong)(X, Y)
    assert caught.value.code == "TK-PAR-001"


def test_a_kernel_that_writes_nothing_is_not_launched() -> None:
    """A driver that is made and never traced leaves nothing that writes the output: the call says so, not its text."""

    def idle(w: tk.Writer) -> Any:
        w.shared.allocate("inputs", size=1024)
        w.isa.elementwise.relu(x=w.isa.convert.float_u32(whole=w.lane()))
        return OneCta()

    kernel = tk.kernel(*ADD, target="sm_90a", threads=64)(idle)
    assert "max" in kernel.ptx
    with pytest.raises(TraceError, match=r"idle traces nothing that writes out: .*driver\.trace\(w\)") as caught:
        kernel(X, Y)
    assert caught.value.code == "TK-COMP-011"


def test_an_unbound_parameter_is_found_when_the_kernel_is_traced() -> None:
    """No arrays are needed to hear of it."""
    with pytest.raises(ArgumentError, match="TK-PAR-003"):
        _ = tk.kernel(*ADD, target="sm_90a", threads=64)(forgetful).ptx


@pytest.mark.parametrize("result", [None, "schedule", tk.Schedule(1, 1)])
def test_a_kernel_function_returns_its_scheduler(result: Any) -> None:
    """Anything else is shown, with what to return."""

    def wrong(w: tk.Writer) -> Any:
        return result

    with pytest.raises(TraceError, match=r"wrong returned .*StaticScheduler") as caught:
        _ = tk.kernel(*ADD, target="sm_90a", threads=64)(wrong).ptx
    assert caught.value.code == "TK-COMP-004"


def test_a_schedule_is_asked_with_the_call() -> None:
    """A scheduler of one's own whose `schedule` takes no call is refused when the kernel is traced."""

    class Deaf:
        def schedule(self) -> tk.Schedule:
            return tk.Schedule(1, 1)

    def asks(w: tk.Writer) -> Any:
        return Deaf()

    with pytest.raises(
        TraceError, match=r"Deaf\(schedule=\) is given schedule\(\).*, but is called with \(call\)"
    ) as caught:
        _ = tk.kernel(*ADD, target="sm_90a", threads=64)(asks).ptx
    assert caught.value.code == "TK-FIT-001"


def test_roles_have_their_warps() -> None:
    """A role whose warps the CTA does not have would wait for ever: it is named, with the nearest number of threads."""
    role = tk.Role("late", range(2, 5), frozenset())

    def crowded(w: tk.Writer) -> Any:
        with w.role(role, w.warp()):
            w.lane()
        return OneCta()

    with pytest.raises(
        TraceError, match=r"role 'late' has warps 2 to 4, .*128 threads are 4 warps; nearest: threads=160"
    ) as caught:
        _ = tk.kernel(*ADD, target="sm_90a", threads=128)(crowded).ptx
    assert caught.value.code == "TK-ROLE-003"
    assert tk.kernel(*ADD, target="sm_90a", threads=160)(crowded).ptx


def test_shared_memory_has_an_end() -> None:
    """More stages than fit are refused when the kernel is traced, with the largest array and by how much."""

    def large(w: tk.Writer) -> Any:
        w.shared.allocate("small", size=1024)
        w.shared.allocate("inputs.a", size=16384, count=15)
        return OneCta()

    with pytest.raises(TraceError, match=r"is 246784 bytes, 14336 over the 232448.*inputs\.a, 15 x 16384") as caught:
        _ = tk.kernel(*ADD, target="sm_90a", threads=64)(large).ptx
    assert caught.value.code == "TK-COMP-005"


def test_without_a_gpu_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """``device="cuda"`` on a machine without a GPU says so when the arrays are bound."""
    monkeypatch.setattr(driver, "why_unavailable", lambda: "none here")
    with pytest.raises(TilekitError, match="TK-API-002"):
        add.bind(X, Y, device="cuda")


def test_host_arrays_have_no_stream() -> None:
    """A stream for arrays in host memory is an error."""
    with pytest.raises(ArgumentError, match="TK-ARRAY-005"):
        add.bind(X, Y)(stream=1)


def test_everything_public_is_documented() -> None:
    """Each name of the surface exists and has a docstring of its own, but for element types and aliases."""
    for name in tk.__all__:
        value = getattr(tk, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name


def test_checked_on_indices_and_given_arrays() -> None:
    """Inputs of s32 are indices into every extent, and `check` takes arrays: a kernel that gathers can be checked."""

    @tk.kernel(
        tk.Input("x", tk.F32, "v"),
        tk.Input("index", tk.S32, "m"),
        tk.Output("out", tk.F32, "m"),
        target="sm_90a",
        threads=64,
    )
    def gather(w: tk.Writer) -> tk.Schedule:
        """out[i] = x[index[i]]."""
        raise NotImplementedError

    for extents in ({}, {"v": 3, "m": 200}, {"m": 5}):
        made = gather.example(7, **extents)
        assert 0 <= made["index"].min() <= made["index"].max() < min(made["x"].size, made["index"].size)
    rows = np.arange(9, dtype=np.int32)
    made = gather.example(index=rows, v=50)
    assert made["index"] is rows
    assert made["x"].shape == (50,)
    for given, says in (
        ({"index": rows[None]}, r"index: given 'one of shape \(1, 9\)'; legal: an array of shape \(m\)"),
        ({"w": 3}, "w: given 3; legal: an extent from 1 on, of v, m; or an array, of x, index"),
        ({"m": 2.5}, "m: given 2.5; legal: an extent from 1 on"),
    ):
        with pytest.raises(ArgumentError, match=says):
            gather.example(**given)


def test_checked_where_it_stores_by_indices() -> None:
    """Of a race at places that check has chosen, it says so, and what to pass; a permutation has none."""

    @tk.kernel(
        tk.Input("x", tk.F32, "n"), tk.Input("order", tk.S32, "n"), tk.Output("out", tk.F32, "n"),
        target="sm_90a", threads=64,
    )  # fmt: skip
    def scatter(w: tk.Writer) -> OneCta:
        """out[order[i]] = x[i]."""
        starts = [w.parameter(o, tk.registers.GMEM, lambda call, o=o: call.address(o)) for o in ("x", "order", "out")]
        at = [(start + w.widen_multiply(w.thread(), 4)).retyped(tk.registers.GMEM) for start in starts[:2]]
        value = w.isa.memory.load_global_scalar(address=at[0])
        place = w.isa.memory.load_global_u32(address=at[1], valid=w.thread() < 64)
        target = (starts[2] + w.widen_multiply(place, 4)).retyped(tk.registers.GMEM)
        w.isa.memory.store_global_f32(address=target, value=value, valid=w.thread() < 64)
        return OneCta()

    with pytest.raises(RaceError, match=r"order are check's own, .* twice: .*pass check\(order=\.\.\.\)"):
        scatter.check(n=64)
    assert scatter.check(order=np.random.default_rng(0).permutation(64).astype(np.int32)).clean
