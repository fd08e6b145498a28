"""A role more changes no other: its instructions are compared with and without, registers and addresses renamed."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.matmul.launches_sm_100a import pairs, single
from tests.matmul.matmul_launch import computes
from tests.mutations.statements import Program
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.dtypes import BF16
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.targets import SM_90A, SM_100A

RESIDUAL = ElementwiseSpec(residual=BF16)

CONFIGS: dict[str, KernelConfig] = {
    "one CTA": single(128, 128, stages=2),
    "one CTA, static": single(64, 64, stages=2, clc_stages=0),
    "pair": pairs(128, 128, stages=2),
    "cluster 4x2": pairs(64, 64, (4, 2), stages=2, clc_stages=3),
    "shared sum": pairs(128, 64, stages=2, split_k=2),
    "swapped": single(128, 32, (1, 2), stages=2, swap_ab=True),
    "Hopper": MatmulConfig((128, 128), (2, 1), 2, stages=2),
    "Hopper, shared sum": MatmulConfig((64, 128), (1, 1), 1, stages=2, split_k=2),
}

_SHARED = re.compile(r"//@shared (\S+) offset=(\d+) size=(\d+)")
_NAME = re.compile(r"(?<![\w.%:])[A-Za-z_]\w*")


@cache
def kernel(name: str, spec: MatmulSpec, profile_tiles: int = 0) -> MatmulKernel:
    """The kernel of one of the configs."""
    config = CONFIGS[name].changed(profile_tiles=profile_tiles)
    return MatmulKernel(spec, config, SM_90A if isinstance(config, MatmulConfig) else SM_100A)


def body(text: str, role: str, without: str = "") -> list[str]:
    """A role's instructions and labels, with registers, labels and places in shared memory named by what they are.

    Instructions that come from the file `without` are left out.
    """
    program, lines = Program.read(text), text.splitlines()
    arrays = [(name, int(offset), int(size)) for name, offset, size in _SHARED.findall(text)]
    labels = {index: name for name, places in program.labels.items() for index in places}
    names: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return called(match.group())

    def called(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}")

    def placed(match: re.Match[str]) -> str:
        number = int(match.group())
        return next((f"{n}+{number - o}" for n, o, size in arrays if o <= number < o + size), match.group())

    found = []
    for s in program.statements:
        if s.role != role or (without and f" {without}:" in lines[s.line - 1]):
            continue
        if s.index in labels and not without:
            found.append(called(labels[s.index]) + ":")
        arguments = _NAME.sub(renamed, s.arguments)
        if s.is_a("add"):
            arguments = re.sub(r"(?<!\w)\d+$", placed, arguments)
        found.append(f"{_NAME.sub(renamed, s.guard)} {s.opcode} {arguments}".strip())
    return found


def roles(of: MatmulKernel) -> set[str]:
    """Its roles."""
    return {role.name for role in of.text.roles}


@pytest.mark.parametrize("name", CONFIGS)
def test_loading_a_residual_changes_no_other_role(name: str) -> None:
    """The role that loads a residual leaves load, scheduler and mma as they are, instruction by instruction.

    On Hopper the mma role stores as well, and the epilogue adds the residual: only those of its roles that do not. Its
    load role says when its first loads are on their way: instructions of the load order, which are left out.
    """
    plain, more = kernel(name, MatmulSpec()), kernel(name, MatmulSpec(functions=RESIDUAL))
    assert roles(more) - roles(plain) == {"epilogue_load"}
    same = roles(plain) - ({"mma"} if plain.target is SM_90A else {"epilogue"})
    assert same >= ({"load"} if plain.target is SM_90A else {"load", "mma"})
    order = "drivers/load_order.py" if plain.target is SM_90A else ""
    for role in same:
        assert len(body(plain.ptx, role)) > 20
        assert body(plain.ptx, role, order) == body(more.ptx, role, order), role


@pytest.mark.parametrize("name", CONFIGS)
def test_profiling_adds_to_roles_and_changes_nothing_in_them(name: str) -> None:
    """Without the profiler's own instructions every role is that of the kernel that notes no times, and off is off."""
    spec = MatmulSpec(functions=RESIDUAL)
    plain, noting = kernel(name, spec), kernel(name, spec, profile_tiles=4)
    source = "drivers/profiler.py"
    assert source not in plain.ptx
    assert source in noting.ptx
    assert roles(plain) == roles(noting)
    for role in roles(plain):
        assert body(plain.ptx, role, source) == body(noting.ptx, role, source), role


@pytest.mark.parametrize("name", [name for name in CONFIGS if not name.startswith("Hopper")])
def test_the_load_order_adds_to_two_roles(name: str) -> None:
    """Load and epilogue_load gain the order's own instructions and nothing else; without it there is nothing of it."""
    spec, config = MatmulSpec(functions=RESIDUAL), CONFIGS[name]
    plain, ordered = kernel(name, spec), MatmulKernel(spec, config.changed(load_order=True), SM_100A)
    source = "drivers/load_order.py"
    assert source not in plain.ptx
    assert "load_order" not in plain.ptx
    assert roles(plain) == roles(ordered)
    for role in roles(plain):
        assert body(plain.ptx, role, source) == body(ordered.ptx, role, source), role
        assert (body(plain.ptx, role) == body(ordered.ptx, role)) == (role not in ("load", "epilogue_load")), role


def test_the_comparison_can_fail() -> None:
    """One instruction more, another register, another barrier or another number in a role is a difference."""
    text = kernel("pair", computes()).ptx
    whole = body(text, "load")
    lines = [line for line in text.splitlines() if "//@ load " in line]
    expect = next(line for line in lines if "mbarrier.arrive.expect_tx" in line)
    count = expect.split(",")[1].split(";")[0].strip()
    empty = next(a.offset for a in kernel("pair", computes()).text.shared if a.name == "inputs.empty")
    address = next(line for line in lines if line.split(";")[0].endswith(f", {empty}"))
    for changed in (
        text.replace(expect, expect + "\n" + expect, 1),
        text.replace(expect, expect.replace(count, "16"), 1),
        text.replace(address, address.replace(str(empty), str(empty + 8)), 1),
        text.replace(expect, expect.replace("mbarrier.arrive", "@elected mbarrier.arrive"), 1),
    ):
        assert changed != text
        assert body(changed, "load") != whole
    renamed = re.sub(r"\bstage(\d*)\b", r"other\1", text)
    assert renamed != text
    assert body(renamed, "load") == whole
