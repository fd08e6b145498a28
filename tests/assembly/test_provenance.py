"""Every instruction says which role runs it and which line of which component asked for it."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

import tilekit
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.errors import AssemblerError
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_90A

PACKAGE = Path(tilekit.__file__).parent
NOTE = re.compile(r"(?P<text>.*\S)\s+//@ (?P<role>\w+) (?P<component>\S+) (?P<file>[\w/]+\.py):(?P<line>\d+)$")


@cache
def functions(file: str) -> list[tuple[str, int, int]]:
    """Qualified name, first and last line of every function of a file of the package."""
    found = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{prefix}{child.name}."
                if isinstance(child, ast.FunctionDef):
                    found.append((inner[:-1], child.lineno, child.end_lineno or 0))
            visit(child, inner)

    visit(ast.parse((PACKAGE / file).read_text(encoding="utf-8")), "")
    return found


@pytest.fixture(scope="module", params=["tma", "direct"])
def kernel(request: pytest.FixtureRequest) -> list[str]:
    """The lines of an entry's body."""
    text = trace(MatmulSpec(batched=True, store=request.param), MatmulConfig(), SM_90A).assembly
    return text[text.index("\n{") :].splitlines()[2:]


def test_every_instruction_has_an_origin(kernel: list[str]) -> None:
    """Lines without one are labels, braces, declarations, notes and the final `ret`, nothing else."""
    bare = [line.strip() for line in kernel if not NOTE.fullmatch(line) and line.strip()]
    other = [line for line in bare if not re.fullmatch(r"\w+:|[{}]|\.reg .*;|//@(role|shared) .*|ret;", line)]
    assert other == []


def test_origins_point_at_real_lines(kernel: list[str]) -> None:
    """File, line and component agree: the line lies in the method that is named, in a file of the package."""
    notes = {match.group("component", "file", "line") for match in map(NOTE.fullmatch, kernel) if match}
    assert len(notes) > 50
    for component, file, line in notes:
        name = component.removesuffix(".genexpr").removesuffix(".lambda").removesuffix(".listcomp")
        spans = [(first, last) for known, first, last in functions(file) if known == name]
        assert any(first <= int(line) <= last for first, last in spans), f"{component} {file}:{line}"


def test_origins_are_components(kernel: list[str]) -> None:
    """The assembly layer never names itself: an origin is its caller."""
    files = {match["file"] for match in map(NOTE.fullmatch, kernel) if match}
    assert not [file for file in files if file.startswith("assembly/")]
    assert {"tile_io/tma.py", "tile_pipeline/mbarrier_sync.py", "tile_op/wgmma.py", "tile_schedule/static.py"} <= files


def test_roles_of_lines(kernel: list[str]) -> None:
    """wgmma lies in the mma role, loads in the load role, barrier initialisation in the setup."""
    roles: dict[str, set[str]] = {}
    for match in map(NOTE.fullmatch, kernel):
        if match:
            instruction = re.sub(r"^@!?\w+ ", "", match["text"].strip()).split()[0]
            roles.setdefault(instruction.split(".")[0], set()).add(match["role"])
            if instruction.startswith("cp.async.bulk.tensor"):
                assert match["role"] == ("load" if "mbarrier" in instruction else "mma")
            if instruction.startswith("mbarrier.init"):
                assert match["role"] == "setup"
    assert roles["wgmma"] == {"mma"}
    assert set().union(*roles.values()) == {"setup", "load", "mma"}


COMPONENT = """
class Doubler:
    def emit(self, w, x):
        return self.twice(x)

    def twice(self, x):
        return x + x
"""


@pytest.mark.parametrize("inserted", [0, 1, 7])
def test_origin_follows_the_source(tmp_path: Path, inserted: int) -> None:
    """Lines put above a component's code move its provenance by as many lines."""
    file = tmp_path / "doubler.py"
    file.write_text("#\n" * inserted + COMPONENT, encoding="utf-8")
    module_spec = importlib.util.spec_from_file_location("doubler", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    w = Writer("k", target="sm_90a", threads=32)
    module.Doubler().emit(w, w.constant(U32, 2))
    line = next(line for line in w.text().splitlines() if line.strip().startswith("add.u32"))
    assert line.endswith(f"//@ setup Doubler.twice doubler.py:{7 + inserted}")


def test_ptxas_errors_name_the_python_line() -> None:
    """When ptxas refuses an instruction, the error shows the line of Python that emitted it."""
    w = Writer("broken", target="sm_90a", threads=32)
    w.emit("frobnicate.u32 smem_base, smem_base;")
    with pytest.raises(AssemblerError, match=r"test_ptxas_errors_name_the_python_line at test_provenance.py:\d+"):
        assemble(w.text(), "sm_90a", kernel_name="broken")
