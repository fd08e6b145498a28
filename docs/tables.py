"""Write the generated tables of the documentation: ``python docs/tables.py`` after what they are made from changes.

A generated table stands between ``<!-- name -->`` and ``<!-- /name -->``. The tests fail when one is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from tilekit import compose
from tilekit.assembly.dialect import Dialect
from tilekit.assembly.fragment import Fragment
from tilekit.assembly.fragment_files import every_fragment
from tilekit.assembly.instruction_sets import DIALECTS
from tilekit.kernels.registry import families
from tilekit.targets import TARGETS

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "tilekit"
CODE = r"TK-[A-Z]+-\d{3}"


def fragments_table(dialect: Dialect) -> str:
    """Every fragment of an instruction set: its call, what it does, its kind, and the lowest architecture."""
    rows = ["| fragment | purpose | kind | target |", "|---|---|---|---|"]
    for group, fragment in sorted(every_fragment(dialect), key=lambda found: found[0]):
        about = fragment.about.replace("|", r"\|")
        flags = " ·aligned" if fragment.aligned else ""
        rows.append(f"| `{_call(group, fragment)}` | {about} | {fragment.kind}{flags} | {_target(fragment)} |")
    return "\n".join(rows)


def _call(group: str, fragment: Fragment) -> str:
    taken = [o.name for o in fragment.operands if o.direction != "out"] + [i.name for i in fragment.immediates]
    return f"{group}.{fragment.name}({', '.join(taken)})"


def _target(fragment: Fragment) -> str:
    version = f", PTX {fragment.version[0]}.{fragment.version[1]}" if any(fragment.version) else ""
    return f"{fragment.target}{version}"


def error_codes() -> dict[str, set[str]]:
    """Every code in the package, with the modules that raise it or, for a class's own code, define it."""
    found: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if re.fullmatch(CODE, text) and id(node) not in docstrings:
                found.setdefault(text, set()).add(file.relative_to(PACKAGE).as_posix())
    return found


def errors_table(page: str) -> str:
    """Return the table of codes: meaning and fix as the page has them, where each is raised as the code has it."""
    words = {
        row[0]: row[1:3] for row in re.findall(r"^\| `(TK-[A-Z]+-\d{3})` \| (.*?) \| (.*?) \|", page, re.MULTILINE)
    }
    rows = ["| code | what is wrong | what to do | raised in |", "|---|---|---|---|"]
    for code, modules in sorted(error_codes().items()):
        meaning, fix = words.get(code, ("", ""))
        rows.append(f"| `{code}` | {meaning} | {fix} | {', '.join(f'`{module}`' for module in sorted(modules))} |")
    return "\n".join(rows)


def model_table() -> str:
    """The constants of Hopper's model, each with its value and what the code says of it."""
    chip = PACKAGE / "kernels" / "matmul" / "sm_90a"
    body = [
        node for name in ("model", "collected") for node in ast.parse((chip / f"{name}.py").read_text("utf-8")).body
    ]
    rows = ["| constant | value | what |", "|---|--:|---|"]
    for node, after in pairwise(body):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant | ast.BinOp)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            name, about = node.targets[0].id, " ".join(str(after.value.value).split("\n\n")[0].split())
            rows.append(f"| `{name}` | {ast.unparse(node.value)} | {about} |")
    return "\n".join(rows)


CHIP_STATES = {
    "sm_80": "kernels built by `mma.sync`, run on the emulator; the text of matmuls for sm_80 run on an H200; not yet "
    "on an A100",
    "sm_86": "kernels built, those of sm_80 with its limits; assembled by ptxas, run on the emulator",
    "sm_89": "kernels built, with 8-bit floats; assembled by ptxas, run on the emulator",
    "sm_90a": "kernels built; run and measured on an H200; emulated",
    "sm_100a": "kernels built; assembled by ptxas, run exactly on the emulator; not yet on a B200",
    "sm_120a": "kernels built by `mma.sync`, with 8-bit floats; assembled by ptxas, run on the emulator",
    "gfx942": "kernels built; assembled by LLVM, run exactly on the emulator; launched through HIP, so far on a double "
    "of its runtime; not yet on an AMD GPU ([AMD](docs/amd.md))",
    "gfx950": "the same: kernels built, not yet run on an AMD GPU",
}
"""What has been done with each chip's kernels."""


def chips_table() -> str:
    """The chips that the registry's families are built for, with the families and what has been done with them."""
    rows = ["| target | as in | families | state |", "|---|---|---|---|"]
    for target in TARGETS.values():
        own = ", ".join(f"`{family.name}`" for family in families().values() if target.name in family.targets)
        rows.append(f"| `{target.name}` | {target.product} | {own} | {CHIP_STATES[target.name]} |")
    return "\n".join(rows)


def protocols() -> list[type]:
    """The protocols of `tilekit.compose`, by name."""
    found = (getattr(compose, name) for name in sorted(compose.__all__))
    return [one for one in found if isinstance(one, type) and getattr(one, "_is_protocol", False)]


def protocols_table() -> str:
    """Every member that a protocol of `tilekit.compose` asks for: how it is called, what it returns, what it does."""
    rows = ["| protocol | member | returns | what |", "|---|---|---|---|"]
    for protocol in protocols():
        for base in reversed(protocol.__mro__):
            if not getattr(base, "_is_protocol", False) or base is Protocol:
                continue
            for name, member in vars(base).items():
                function = member.fget if isinstance(member, property) else member
                if name.startswith("_") or not inspect.isfunction(function):
                    continue
                signature = inspect.signature(function)
                call = name if isinstance(member, property) else f"{name}({_taken(signature)})"
                returns = str(signature.return_annotation).replace("|", r"\|")
                about = " ".join((function.__doc__ or "").split()).replace("|", r"\|")
                rows.append(f"| `{protocol.__name__}` | `{call}` | `{returns}` | {about} |")
    return "\n".join(rows)


def _taken(signature: inspect.Signature) -> str:
    """What a method is given, a star before what is given by name."""
    own = list(signature.parameters.values())[1:]
    spelled = [str(one.replace(annotation=one.empty)) for one in own]
    by_name = [one.kind is one.KEYWORD_ONLY for one in own]
    if any(by_name):
        spelled.insert(by_name.index(True), "*")
    return ", ".join(spelled)


def with_table(page: str, name: str, table: str) -> str:
    """Return the page with the table called `name` replaced."""
    return re.sub(
        rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m[1]}{table}\n{m[2]}", page, flags=re.DOTALL
    )


def main() -> None:
    """Bring the pages up to date."""
    fragments, errors, model = DOCS / "fragments.md", DOCS / "errors.md", DOCS / "hopper-model.md"
    model.write_text(with_table(model.read_text("utf-8"), "model", model_table()), "utf-8")
    asked = DOCS / "reference" / "protocols.md"
    asked.write_text(with_table(asked.read_text("utf-8"), "protocols", protocols_table()), "utf-8")
    readme = DOCS.parent / "README.md"
    readme.write_text(with_table(readme.read_text("utf-8"), "chips", chips_table()), "utf-8")
    text = fragments.read_text("utf-8")
    for isa, dialect in DIALECTS.items():
        text = with_table(text, f"fragments {isa}", fragments_table(dialect))
    fragments.write_text(text, "utf-8")
    text = errors.read_text("utf-8")
    errors.write_text(with_table(text, "errors", errors_table(text)), "utf-8")


if __name__ == "__main__":
    main()
