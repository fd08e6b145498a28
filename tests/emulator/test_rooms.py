"""The emulator's rooms: what any GPU's emulator shares knows nothing of PTX."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tilekit.emulator

CORE = Path(tilekit.emulator.__file__).parent / "core"
ROOM = "tilekit.emulator.core"
FILES = sorted(CORE.rglob("*.py"))


def _imported(tree: ast.Module) -> list[str]:
    """Modules that a file imports at any place, for annotations as well."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            found.append(node.module or "")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CORE)))
def test_core_imports_core_alone(file: Path) -> None:
    """A file of core imports of tilekit nothing but core, not even for a type."""
    for module in _imported(ast.parse(file.read_text())):
        if module.split(".")[0] == "tilekit":
            assert module == ROOM or module.startswith(f"{ROOM}."), f"{file.name} imports {module}"


def test_other_imports_are_seen() -> None:
    """The reader of imports sees those in functions and those for annotations."""
    text = "if TYPE_CHECKING:\n    from tilekit.emulator.ptx.launch import Launch\ndef f():\n    import tilekit.calls\n"
    assert _imported(ast.parse(text)) == ["tilekit.emulator.ptx.launch", "tilekit.calls"]
