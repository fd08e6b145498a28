"""Chips are told apart in `targets/` and in the folders that have their names, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tilekit
from tilekit.cli import options
from tilekit.emulator import Device, LaunchError
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.platforms import having, platform, platforms
from tilekit.targets import DEFAULT, SM_90A, TARGETS
from tilekit.targets import chip as chip_named
from tilekit.targets import target as target_named

ROOT = Path(tilekit.__file__).parent

CHIP = re.compile(r"sm_?(90|100)a?|gfx9|cdna[34]|mi3\d\d|hopper|blackwell|[hb]200|tensor_columns", re.IGNORECASE)

_FAMILIES = ("matmul", "attention")
TABLES = (
    *("targets/", "emulator/", "assembly/gcn/", "cycles/"),
    *(f"kernels/{family}/{name}/" for family in _FAMILIES for name in TARGETS),
)
"""Where chips are described: their limits, the emulator's, the dialect's and the cycle model's tables of them, and what
each brings to the matmul and to attention."""

REMAINING = {
    "__init__.py": "the public names of the chips' configs",
    "cli/app.py": "examples of commands",
    "cli/options.py": "help of options that one chip has, and the default of --target, which imports no targets",
    "cli/sources.py": "the chip of AMDGCN text that names none",
    "runtime/assembler.py": "what names of AMD targets look like, and an example in an error",
    "tile_op/tensor_memory.py": "tensor memory's extent, which an allocation keeps to",
    "compose/portable_choices.py": "tensor memory's extent, for the instruction that has its sums there",
    "kernels/attention/platforms.py": "the chips that attention is built for, and where each has its own",
    "kernels/attention/compiled.py": "tensor memory's extent, of which explain draws a bar",
    "kernels/gemv/family.py": "the chip that the gemv was measured on, and is built for",
}
"""What names a chip elsewhere, and why; a file that no longer does so leaves the list."""


def _code(tree: ast.Module) -> Iterator[str]:
    """The names and strings of a module that are no docstrings and no attributes' descriptions."""
    words = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            yield node.value
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def _names_a_chip(file: Path) -> bool:
    return any(CHIP.search(word) for word in _code(ast.parse(file.read_text("utf-8"))))


def test_no_other_file_names_a_chip() -> None:
    """No code outside the tables names a chip, or asks for tensor memory, but for the files that are listed."""
    files = {str(file.relative_to(ROOT)): file for file in sorted(ROOT.rglob("*.py"))}
    naming = {name for name, file in files.items() if not name.startswith(TABLES) and _names_a_chip(file)}
    assert naming == set(REMAINING)


def test_what_counts_as_naming() -> None:
    """Code does, also in a string that a decision may rest on; what a docstring says does not."""
    for text in ('x = "sm_90a"', "x.tensor_columns", "from a import SM_100A", "def hopper(): ...", "f(b200=1)"):
        assert any(CHIP.search(word) for word in _code(ast.parse(text))), text
    assert not any(CHIP.search(word) for word in _code(ast.parse('x = 1\n"""Of an H200 (sm_90a)."""')))


def test_no_file_asks_what_kind_of_config_it_has() -> None:
    """Outside the chips' folders no `isinstance` names a chip's config, and no `hasattr` asks for a field."""
    kinds = {its.config.__name__ for its in platforms().values()}
    for folder in ("kernels", "cli", "tuning", "heuristics", "drivers"):
        for file in (ROOT / folder).rglob("*.py"):
            if str(file.relative_to(ROOT)).startswith(TABLES):
                continue
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    text = ast.unparse(node)
                    assert node.func.id != "isinstance" or not any(kind in text for kind in kinds), f"{file}: {text}"
                    assert node.func.id != "hasattr" or "config" not in text, f"{file}: {text}"


def test_every_chip_brings_its_part() -> None:
    """A chip's folder is its table: config, components, model and notes; the fields tell which options it has."""
    assert {chip.name for chip in platforms()} == set(TARGETS)
    for chip, its in platforms().items():
        assert its is platform(chip)
        assert chip.name == its.config.TARGET
        assert chip.name in having("tile")
    assert having("consumers") == ["sm_90a"]
    assert having("cta_group") == ["sm_100a"]
    assert having("nothing") == []


def test_commands_have_the_default_chip() -> None:
    """What `--target` is where it is not given is what a call without a target is built for."""
    assert DEFAULT.name == options.DEFAULT_TARGET


NEAREST = {
    "sm_80": ("sm_75", "sm_70", "ampere", "A100", "NVIDIA A100-SXM4-80GB", "v100", "T4", "8.0"),
    "sm_86": ("sm_87", "sm_88", "A10", "a40", "RTX 3090"),
    "sm_89": ("Ada", "L4", "L40S", "GeForce RTX 4090", "4090"),
    "sm_90a": ("sm_90", "SM_90A", "sm90a", "90a", "compute_90", "sm_99", "hopper", "H100", "h200", "GH200", "nothing"),
    "sm_100a": ("sm_100", "sm_103a", "sm_100f", "sm_110a", "blackwell", "B200", "GB300"),
    "sm_120a": ("sm_120", "sm_121a", "RTX 5090", "GB10"),
    "gfx942": ("gfx90a", "gfx908", "gfx940", "gfx941", "gfx943", "gfx94a", "GFX942", "MI300X", "mi250x", "cdna3"),
    "gfx950": ("gfx95", "gfx951", "gfx1100", "gfx1201", "MI355X", "AMD Instinct MI350X", "cdna4"),
}
"""Names that no target has, and the one that each means."""


@pytest.mark.parametrize(("name", "nearest"), [(name, nearest) for nearest, names in NEAREST.items() for name in names])
def test_a_name_between_the_chips(name: str, nearest: str) -> None:
    """The nearest chip is named: the last one of its maker's up to a number, and what a product's name means."""
    for find in (target_named, chip_named):
        with pytest.raises(ArgumentError, match=rf"'{name}' is not a .*; nearest: {nearest} \[TK-TARGET-001\]"):
            find(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("sm_87", "sm_86"), ("sm_75", "sm_80"), ("sm_103a", "sm_100a"), ("gfx90a", "gfx942"), ("gfx1100", "gfx950")],
)
def test_the_emulator_says_the_same(name: str, nearest: str) -> None:
    """A device of a chip that it has not names the nearest by the same rule."""
    with pytest.raises(LaunchError, match=f"use target='{nearest}'"):
        Device(name)


def test_a_chip_without_a_matmul() -> None:
    """It is refused by name, with the chips that have one."""
    with pytest.raises(ArgumentError, match="TK-TARGET-001") as caught:
        platform(replace(SM_90A, name="sm_75"))
    assert all(name in str(caught.value) for name in ("sm_75", *TARGETS))
