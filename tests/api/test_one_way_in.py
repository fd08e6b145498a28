"""One way in: a call is read once, offered to the families in turn, and its keywords stand in one place."""

from __future__ import annotations

import inspect
import sys
import typing
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.arrays import view_of
from tilekit.calls import matmul as calls
from tilekit.emulator.ptx.device import Device
from tilekit.errors import ArgumentError
from tilekit.kernels import dispatch, registry
from tilekit.kernels.blockwise.arguments import ScaledGroupsKeywords
from tilekit.kernels.compiled import BindKeywords, CompiledKernel
from tilekit.kernels.family import Declined, Family, Selection, TunedConfigs
from tilekit.kernels.gemv.problem import read_gemv
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.matmul.arguments import MatmulArguments, MatmulKeywords
from tilekit.kernels.plan import EmulatedPlan, EmulatorKeywords
from tilekit.kernels.problem import read_problem
from tilekit.targets import TARGETS

BF16 = ml_dtypes.bfloat16


def ones(*shape: int, dtype: Any = BF16) -> Any:
    """An array of ones."""
    return np.ones(shape, dtype)


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, int]]] = {
    "matmul": (
        tilekit.matmul,
        {"a": ones(40, 64), "b": ones(64, 48)},
        {"arrays": 3, "read_problem": 1, "read_gemv": 0, "MatmulSpec": 1},
    ),
    "everything": (
        tilekit.matmul,
        {
            "a": ones(2, 40, 64),
            "b": ones(2, 64, 48),
            "out": ones(2, 40, 48),
            "bias": ones(48, dtype=np.float32),
            "scale_a": ones(40, dtype=np.float32),
            "scale_b": ones(48, dtype=np.float32),
            "residual": ones(40, 48),
            "beta": 2.0,
        },
        {"arrays": 7, "read_problem": 1, "read_gemv": 0, "MatmulSpec": 1},
    ),
    "gemv": (
        tilekit.matmul,
        {"a": ones(3, 64), "b": ones(48, 64).T, "out": ones(3, 48)},
        {"arrays": 3, "read_problem": 1, "read_gemv": 1, "MatmulSpec": 1},
    ),
    "grouped": (
        tilekit.grouped_matmul,
        {"a": ones(40, 64), "b": ones(2, 64, 48), "ends": np.array([9, 40], np.int32), "out": ones(40, 48)},
        {"arrays": 4, "read_problem": 1, "read_gemv": 0, "MatmulSpec": 1},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_first_call_reads_each_array_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array is viewed once, the operands are checked against each other once, and one spec is made."""
    function, arguments, expected = CALLS[name]
    monkeypatch.setattr(EmulatedPlan, "_run", lambda _: None)
    function(**arguments)  # traces the kernel, which checks configs
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            owner = type(frame.f_locals.get("self")).__name__
            found["MatmulSpec" if (owner, code.co_name) == ("MatmulSpec", "__post_init__") else code.co_name] += 1

    sys.setprofile(note)
    try:
        function(**arguments)
    finally:
        sys.setprofile(None)
    found["arrays"] = found["_view_numpy"]
    assert {what: found[what] for what in expected} == expected


def test_what_is_parsed_does_not_change() -> None:
    """The parsed call is frozen: who has it cannot alter it for the others."""
    arguments = MatmulArguments.parse(ones(40, 64), ones(64, 48))
    with pytest.raises(AttributeError):
        arguments.out = arguments.a  # type: ignore[misc]
    filled = arguments.into(ones(40, 48))
    assert arguments.result is None
    assert filled.a is arguments.a


def test_whatever_a_gemv_reads_a_matmul_reads() -> None:
    """The operands are checked once for all families of a call, so none may take what that check refuses."""
    chance = np.random.default_rng()
    read = 0
    for _ in range(3000):
        m, k, n = (int(chance.choice([0, 1, 2, 3, 8, 16])) for _ in range(3))
        kind = chance.choice(np.array([np.float16, np.float32, np.uint8], object))
        whole = np.zeros(8192, kind)
        dtype = ml_dtypes.float8_e4m3fn if kind is np.uint8 else kind

        def strided(shape: tuple[int, int], whole: Any = whole, dtype: Any = dtype) -> Any:
            steps = [int(chance.choice([-1, 0, 1, 2, 3, 16, 64])) * whole.itemsize for _ in shape]
            start = int(chance.integers(2048, 2064))
            return np.lib.stride_tricks.as_strided(whole[start:], shape, steps).view(dtype)

        a, b = view_of(strided((m, k)), "a"), view_of(strided((k, n)), "b")
        try:
            read_gemv(a, b)
        except ArgumentError:
            continue
        read += 1
        problem = read_problem(a, b)
        assert (problem.m, problem.n, problem.k) == (m, n, k)
    assert read > 100


@pytest.mark.parametrize(
    ("function", "keywords"), [(tilekit.matmul, MatmulKeywords), (tilekit.grouped_matmul, ScaledGroupsKeywords)]
)
def test_the_keywords_are_those_of_the_call(function: Any, keywords: Any) -> None:
    """The signature that is shown and the keywords that are parsed are the same, and so are their annotations."""
    shown = inspect.signature(function)
    given = {p.name for p in shown.parameters.values() if p.kind is p.KEYWORD_ONLY}
    hints = typing.get_type_hints(function, include_extras=True)
    assert given - {"stream"} == set(keywords.__annotations__)
    for name, kind in typing.get_type_hints(keywords, include_extras=True).items():
        assert kind == hints[name], name


def test_defaults_are_those_of_the_call() -> None:
    """What is left out is parsed to what the signature says."""
    shown = inspect.signature(tilekit.matmul).parameters
    said = {name: shown[name].default for name in MatmulKeywords.__annotations__}
    a, b = ones(40, 64), ones(64, 48)
    assert repr(MatmulArguments.parse(a, b)) == repr(MatmulArguments.parse(a, b, **said))


def test_the_emulators_options_are_its_own() -> None:
    """`bind` takes what the emulated device for PTX takes, but for the target, which the kernel has."""
    options = [name for name in inspect.signature(Device).parameters if name != "target"]
    assert options == list(EmulatorKeywords.__annotations__)
    bound = set(inspect.signature(CompiledKernel.bind).parameters) - {"self", "a", "b", "out"}
    assert bound == set(BindKeywords.__annotations__)


@pytest.mark.parametrize("name", ["kernel_for", "result_of", "bind"])
def test_an_unknown_keyword_is_named_with_the_nearest(name: str) -> None:
    """A keyword that a call does not have is a TypeError, as Python's own, and says which one was meant."""
    a, b = ones(40, 64), ones(48, 64).T
    call: Any = tilekit.compile(tilekit.MatmulSpec()).bind if name == "bind" else getattr(calls, name)
    with pytest.raises(TypeError, match=rf"{name}\(\) has no keyword 'baias'; legal: .*; nearest: 'bias'"):
        call(a, b, baias=ones(48))
    with pytest.raises(TypeError, match=r"has no keyword 'qqqqqqqq'; legal: [^;]*$"):
        call(a, b, qqqqqqqq=1)


def test_help_lists_the_keywords() -> None:
    """Signatures name every keyword, although the code does not repeat them."""
    assert set(inspect.signature(calls.kernel_for).parameters) == {"a", "b", *MatmulKeywords.__annotations__}


@pytest.fixture
def families(monkeypatch: pytest.MonkeyPatch) -> dict[str, Family]:
    """The registry, to be changed."""
    known = dict(registry.families())
    monkeypatch.setattr(dispatch, "families", lambda: known)
    return known


def test_a_further_family_is_an_entry(families: dict[str, Family], monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry before the others is offered every matmul; what it takes it computes, what it declines goes on."""
    launched: list[str] = []
    monkeypatch.setattr(EmulatedPlan, "_run", lambda plan: launched.append(plan._kernel.spec.name))
    offered: list[MatmulArguments] = []
    matmul = families["matmul"]

    def squares_alone(arguments: MatmulArguments, tuned: TunedConfigs | None) -> Selection | Declined:
        offered.append(arguments)
        if arguments.problem.m != arguments.problem.n:
            return Declined("it is for squares")
        spec = replace(arguments.spec, store="direct")
        return Selection(matmul.compile(spec, None, arguments.target), arguments)

    others = dict(families)
    families.clear()
    families["squares"] = replace(matmul, name="squares", select=squares_alone)
    families.update(others)
    tilekit.matmul(ones(64, 64), ones(64, 64))
    tilekit.matmul(ones(40, 64), ones(64, 64))
    tilekit.grouped_matmul(ones(40, 64), ones(1, 64, 64), [40])
    assert len(offered) == 2
    assert launched == [
        "matmul_bf16_bf16_bf16_kn_direct",
        "matmul_bf16_bf16_bf16_kn",
        "matmul_bf16_bf16_bf16_kn_grouped_ends",
    ]


def test_a_call_that_all_decline(families: dict[str, Family]) -> None:
    """The error says what each family said, and one that is built for other chips says so."""
    del families["matmul"]
    with pytest.raises(ArgumentError, match="gemv: it takes 1 to 8 rows, without batches") as caught:
        tilekit.matmul(ones(9, 64), ones(64, 64))
    assert caught.value.code == "TK-API-005"
    with pytest.raises(ArgumentError, match="gemv: it is built for sm_90a, and the call is for sm_100a"):
        tilekit.matmul(ones(1, 64), ones(64, 64), target="sm_100a")


def test_a_family_asked_alone() -> None:
    """One family can be asked by name, and declines in its words."""
    arguments = MatmulArguments.parse(ones(4, 64), ones(64, 64).T, memory=False)
    assert dispatch.select(arguments).kernel.name.startswith("gemv_")
    assert dispatch.select(arguments, family="matmul").kernel.name.startswith("matmul_")
    rows = MatmulArguments.parse(ones(9, 64), ones(64, 64).T, memory=False)
    with pytest.raises(ArgumentError, match="no kernel family takes this call: gemv: it takes 1 to 8 rows"):
        dispatch.select(rows, family="gemv")


def test_families_that_there_are() -> None:
    """Each has what the command line and the documents show, kernels for its targets, and reads calls."""
    names = [
        "gemv",
        "matmul",
        "grouped_matmul",
        "conv2d",
        "block_scaled",
        "blockwise",
        "grouped_blockwise",
        "attention",
    ]
    assert list(registry.families()) == names
    for family in registry.families().values():
        assert family.summary
        assert set(family.targets) <= set(TARGETS)
        for target in family.targets:
            assert tilekit.compile(family.spec(), target).target.name == target
    specs = " or ".join(f"a {name}" for name in ("GemvSpec", "MatmulSpec", "ConvSpec", "BlockScaledSpec"))
    with pytest.raises(ArgumentError, match=f"spec: given 3; legal: {specs}"):
        tilekit.compile(3)


def test_compile_takes_the_spec_of_any_family() -> None:
    """The spec says whose kernel it is; another family's config is refused by name."""
    a, b = ones(2, 64), ones(48, 64).T
    kernel = tilekit.compile(GemvSpec(tokens=2))
    np.testing.assert_array_equal(kernel.bind(a, b)(), np.full((2, 48), 64))
    with pytest.raises(ArgumentError, match=r"config: given .*; legal: a GemvConfig or None"):
        tilekit.compile(GemvSpec(), config=tilekit.MatmulConfig())


def test_a_kernel_for_groups_takes_no_plain_product() -> None:
    """Bound to plain operands it would read bounds that are not there."""
    kernel = tilekit.compile(tilekit.MatmulSpec(groups="ends"))
    with pytest.raises(ArgumentError, match=r"pass either ends .* or counts") as caught:
        kernel.bind(ones(64, 64), ones(64, 64).T)
    assert caught.value.code == "TK-GROUP-001"
