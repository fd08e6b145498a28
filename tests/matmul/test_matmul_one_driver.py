"""There is one driver: the kernels of both chips are traced by the same role loops."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import tilekit
from tilekit import MatmulSpec
from tilekit.assembly.writer import Writer
from tilekit.kernels.matmul.compose import RINGS, compose
from tilekit.kernels.matmul.picker import default_config
from tilekit.kernels.matmul.platforms import platforms

ROOT = Path(tilekit.__file__).parent
DRIVER = "tilekit.drivers.warp_specialized"
TOGETHER = "tilekit.drivers.together"
"""What drivers without roles have in common: a single role."""
MULTISTAGE = "tilekit.drivers.multistage"
"""That of chips whose warps copy for themselves: a single role, too."""
SKELETON = "tilekit.drivers.roles"


@cache
def tree(module: str) -> ast.Module | None:
    """A module of tilekit, parsed; None for a name that is none."""
    path = ROOT.joinpath(*module.split(".")[1:])
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text())
    return None


def imported(module: str) -> set[str]:
    """The modules of tilekit that a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree(module) or ast.Module([], [])):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tilekit."):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("tilekit.")}
    return {name for name in names if tree(name) is not None}


def reached(module: str) -> set[str]:
    """All that a module needs."""
    found, left = {module}, [module]
    while left:
        new = imported(left.pop()) - found
        found |= new
        left += new
    return found


def enters_roles(module: str) -> bool:
    """Whether a module has a role's instructions emitted: ``with w.role(...)``."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "role"
        for node in ast.walk(tree(module) or ast.Module([], []))
    )


def test_every_chip_composes_the_same_driver() -> None:
    """What a spec and a config select is handed by the one composition to the driver that the config names."""
    spec = MatmulSpec()
    for target in platforms():
        config = default_config(spec, target)
        threads = config.warps(target, spec).threads
        w = Writer("kernel", target=target.name, threads=threads, cluster=config.cluster_size)
        assert type(compose(w, spec, config, target)) is RINGS[config.driver]


def test_nothing_else_that_they_need_traces_roles() -> None:
    """Of all modules that the chips' kernels import, directly or not, only the driver's skeleton opens roles."""
    needed = reached("tilekit.kernels.matmul.compose")
    for chip in platforms():
        needed |= reached(f"tilekit.kernels.matmul.{chip.name}.platform")
    assert DRIVER in needed
    assert len(needed) > 20
    assert {module for module in needed if enters_roles(module)} == {SKELETON}
    assert {module for module in needed if SKELETON in imported(module)} == {DRIVER, MULTISTAGE, TOGETHER}


def test_nothing_else_loops_over_tiles() -> None:
    """No kernel module of theirs loops over a scheduler's tiles, multiplies a stage or prepares barriers itself."""
    calls = {"tiles", "multiply", "initialise"}
    for module in reached("tilekit.kernels.matmul.kernel"):
        if module.startswith("tilekit.kernels."):
            used = {
                node.func.attr
                for node in ast.walk(tree(module) or ast.Module([], []))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            }
            assert not used & calls, module
