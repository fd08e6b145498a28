"""Small mistakes that can be planted in a Python file: each changes one expression or statement, and nothing else."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.Pow: ast.Mult,
}  # fmt: skip
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNREAD = ("__repr__", "__str__", "__rich__")
"""Functions that only people read the results of."""


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes
    ----------
    file, where
        The source file, from the repository's root, and the function or class in it ("" for the module).
    kind
        What was done, in a word or two.
    first, last
        The lines that it changes.
    before, after
        The changed expression or statement, on one line: what the list of judged mutants knows it by.
    start, end
        Offsets of `before` in the file's text.
    """

    file: str
    where: str
    kind: str
    first: int
    last: int
    before: str
    after: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.file}:{self.first} {self.where or '(module)'}: {self.kind}: {self.before}  ->  {self.after}"

    def planted(self, text: str) -> str:
        """The file's text with the mistake."""
        return text[: self.start] + self.after + text[self.end :]


def mutants(file: str, text: str) -> list[Mutant]:
    """Every mistake that can be planted in a file, in the order of its text."""
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.found


def sample(texts: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """Mistakes drawn at random: a file by its length, a kind that the file has, a place.

    Drawing the kind before the place keeps the many constants from crowding out the rest.
    """
    chance = random.Random(seed)
    kinds: dict[str, dict[str, list[Mutant]]] = {}
    chosen: dict[Mutant, None] = {}
    files = sorted(texts)
    lengths = [texts[file].count("\n") for file in files]
    for _ in range(100 * count):
        if len(chosen) == count:
            break
        (file,) = chance.choices(files, lengths)
        if file not in kinds:
            kinds[file] = defaultdict(list)
            for mutant in mutants(file, texts[file]):
                kinds[file][mutant.kind].append(mutant)
        if kinds[file]:
            chosen[chance.choice(kinds[file][chance.choice(sorted(kinds[file]))])] = None
    return list(chosen)


class _Finder(ast.NodeVisitor):
    """Walks one file; what has a `visit_` method can be mutated, and what is only read by people is not entered."""

    def __init__(self, file: str, text: str) -> None:
        self.found: list[Mutant] = []
        self._file, self._text = file, text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = text.splitlines()
        self._scopes: list[str] = []

    # -- what is looked at --------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Defaults and body; decorators and annotations stay."""
        if node.name in _UNREAD:
            return
        self._scopes.append(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._body(node.body)
        self._returns(node)
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body alone."""
        self._scopes.append(node.name)
        self._body(node.body)
        self._scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """A check that no longer raises; its message is read by people."""
        self._put("statement deleted", node, "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people, or instructions whose operands are mutated where they are computed."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """What always holds."""

    def visit_Import(self, node: ast.Import) -> None:
        """Nothing to get wrong."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Nothing to get wrong."""

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_text:
                self.visit(statement)

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    # -- statements ---------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self._put("statement deleted", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._put("statement deleted", node, "pass")
        if other := _ARITHMETIC.get(type(node.op)):
            self._put("arithmetic", node, ast.AugAssign(node.target, other(), node.value))
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A kept value is not set; without a name's first value nothing would run, and say nothing."""
        if any(isinstance(target, ast.Name) and target.id.startswith("__") for target in node.targets):
            return
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._put("statement deleted", node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._put("statement deleted", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._put("statement deleted", node, "pass")

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._put("condition dropped", test, "True")
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        self._put("condition negated", test, f"not ({ast.unparse(test)})")
        self._put("condition dropped", test, "True")
        self._put("condition dropped", test, "False")

    def _returns(self, function: ast.FunctionDef) -> None:
        """Results that a caller could mistake for right ones; one of another type would fail at once."""
        annotation = ast.unparse(function.returns) if function.returns else ""
        change: Callable[[str], str] | None = None
        if annotation == "bool":
            change = "not ({})".format
        elif annotation in ("int", "float"):
            change = "({}) + 1".format
        elif annotation.startswith(("list[", "tuple[")):
            change = "({})[:-1]".format
        if change is None:
            return
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
                self._put("result changed", node.value, change(ast.unparse(node.value)))

    # -- expressions --------------------------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._put("constant", node, str(node.value + 1))
            self._put("constant", node, str(node.value - 1))
        elif isinstance(node.value, float):
            self._put("constant", node, repr(node.value * 1.5 if node.value else 1.0))

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, operator in enumerate(node.ops):
            swapped = [*node.ops[:at], _COMPARISONS[type(operator)](), *node.ops[at + 1 :]]
            self._put("comparison", node, ast.Compare(node.left, swapped, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._put("and, or", node, ast.BoolOp(other, node.values))
        for at in range(len(node.values)):
            left = [*node.values[:at], *node.values[at + 1 :]]
            self._put("condition dropped", node, left[0] if len(left) == 1 else ast.BoolOp(node.op, left))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._put("sign or not dropped", node, node.operand)
        self.visit(node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str)
                   for side in (node.left, node.right))  # fmt: skip
        if not text and (other := _ARITHMETIC.get(type(node.op))):
            self._put("arithmetic", node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        called = partial(ast.Call, node.func)
        if name in _TWINS:
            self._put("min, max, any, all", node, ast.Call(ast.Name(_TWINS[name]), node.args, node.keywords))
        for at in range(len(node.args) - 1):
            first, second = node.args[at : at + 2]
            if ast.dump(first) != ast.dump(second) and not isinstance(second, ast.Starred):
                swapped = [*node.args[:at], second, first, *node.args[at + 2 :]]
                self._put("arguments swapped", node, called(swapped, node.keywords))
        for keyword in node.keywords:
            if keyword.arg not in (None, "strict"):  # like an assertion, strict= only says what always holds
                left = [other for other in node.keywords if other is not keyword]
                self._put("argument dropped", node, called(node.args, left))
        if len(node.args) > 1:
            self._put("argument dropped", node, called(node.args[:-1], node.keywords))
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        lower, upper = node.lower, node.upper
        one = ast.Constant(1)
        self._put("slice", node, ast.Slice(ast.BinOp(lower, ast.Add(), one) if lower else one, upper, node.step))
        if upper is not None:
            self._put("slice", node, ast.Slice(lower, ast.BinOp(upper, ast.Add(), one), node.step))
        self.generic_visit(node)

    # -- planting -----------------------------------------------------------------------------------------------------

    def _put(self, kind: str, node: ast.AST, after: ast.AST | str) -> None:
        text = after if isinstance(after, str) else ast.unparse(ast.fix_missing_locations(after))
        if isinstance(after, ast.BinOp | ast.BoolOp | ast.Compare):
            text = f"({text})"
        start, end = self._offset(node, "lineno", "col_offset"), self._offset(node, "end_lineno", "end_col_offset")
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        before = " ".join(self._text[start:end].split())
        where = ".".join(self._scopes)
        self.found.append(Mutant(self._file, where, kind, first, last, before, text, start, end))

    def _offset(self, node: ast.AST, line: str, column: str) -> int:
        number = getattr(node, line) - 1
        prefix = self._lines[number].encode()[: getattr(node, column)].decode()
        return self._starts[number] + len(prefix)
