"""Whole PTX modules, as compilers and people write them, parsed to :mod:`.syntax`.

Names are resolved while parsing, in the :mod:`.scopes` that are open, so a fragment pasted many times may repeat its
names. Source: PTX ISA, sections 4, 5 and 11.
"""

from __future__ import annotations

from tilekit.emulator.core.errors import PtxSyntaxError
from tilekit.emulator.ptx.language.declarations import VARIABLE_TYPES, alignment, parameter, variable_declarators
from tilekit.emulator.ptx.language.directives import read_directives
from tilekit.emulator.ptx.language.header import read_header
from tilekit.emulator.ptx.language.instructions import InstructionReader
from tilekit.emulator.ptx.language.lexer import Token, TokenStream, tokenize
from tilekit.emulator.ptx.language.scopes import Scope
from tilekit.emulator.ptx.language.special_registers import SPECIAL_REGISTERS
from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    Function,
    PtxModule,
    Variable,
)
from tilekit.emulator.ptx.language.token_reader import LINKAGE

_SPACES = {".shared", ".global", ".const", ".local", ".param"}


def parse_module(text: str) -> PtxModule:
    """Parse PTX text.

    Raises
    ------
    PtxSyntaxError
        Naming line, column and what was expected.
    """
    return _Parser(tokenize(text)).module()


def parse_all(text: str) -> tuple[PtxModule, list[PtxSyntaxError]]:
    """Parse a complete module as far as it can be, going on behind each error; return it, and what was wrong.

    Raises
    ------
    PtxSyntaxError
        Where the text has no tokens, or no header, that can be read.
    """
    parser = _Parser(tokenize(text), [])
    module = parser.module()
    assert parser.errors is not None
    return module, parser.errors


class _Parser(InstructionReader):
    def __init__(self, stream: TokenStream, errors: list[PtxSyntaxError] | None = None) -> None:
        super().__init__(stream)
        self.annotated = 0
        self.errors = errors
        """Where errors are collected; None to stop at the first."""
        self.lost_names = False
        """Whether something went wrong in this function that may have declared names."""

    # -- module ------------------------------------------------------------------------------------------------------

    def module(self) -> PtxModule:
        read_header(self, self.result)
        while self.tokens[self.at].kind != "end":
            start = self.at
            try:
                self.module_statement()
            except PtxSyntaxError as error:
                self.keep(error)
                self.leave_function(start)
        self.result.variables = self.scopes.outermost.variables
        return self.result

    def keep(self, error: PtxSyntaxError) -> None:
        """Note an error and go on, or raise it."""
        if self.errors is None:
            raise error
        self.errors.append(error)

    def leave_statement(self, start: int) -> None:
        """Go on behind a statement that cannot be read, or at the next line, if what is wrong is that it has no `;`."""
        self.lost_names |= self.tokens[start].text in (".reg", *_SPACES)
        self.at = min(max(self.at, start + 1), len(self.tokens) - 1)
        if self.tokens[self.at].line > self.tokens[self.at - 1].line:
            return
        while self.tokens[self.at].kind != "end" and self.tokens[self.at - 1].text != ";":
            self.at += 1

    def leave_function(self, start: int) -> None:
        """Go on behind a function or variable that cannot be read."""
        self.at = min(max(self.at, start + 1), len(self.tokens) - 1)
        self.scopes.close_all()
        self.function, self.inside_function, self.lost_names = None, False, False
        depth = 0
        while self.tokens[self.at].kind != "end":
            text = self.tokens[self.at].text
            if not depth and self.starts_module_statement():
                return
            self.at += 1
            depth += (text == "{") - (text == "}")
            if depth <= 0 and text in ("}", ";"):
                return

    def module_statement(self) -> None:
        text = self.peek()
        if text == ".file":
            self.file()
        elif text == ".pragma":
            self.pragma()
        elif text == ".alias":
            self.alias()
        elif text == ".section":
            self.at += 2
            self.skip_braces()
        else:
            self.declaration()

    def declaration(self) -> None:
        linkage = self.next().text if self.peek() in LINKAGE else ""
        token = self.tokens[self.at]
        if token.text in (".entry", ".func"):
            if linkage == ".common":
                self.fail(".common is for variables", token)
            self.parse_function(linkage)
        elif token.text == ".attribute" or token.text in _SPACES:
            self.parse_variables(linkage)
        else:
            self.fail(f"expected a directive such as .entry, .func or .shared, found {token.text!r}")

    # -- functions ---------------------------------------------------------------------------------------------------

    def alias(self) -> None:
        """``.alias name, function;`` (PTX ISA 11.6.5)."""
        self.at += 1
        name = self.word("a function name")
        self.expect(",")
        target = self.word("a function name")
        self.expect(";")
        if target.text not in self.result.functions:
            self.fail(f"{target.text} is not a function of this module", target)
        self.result.functions[name.text] = self.result.functions[target.text]

    def parse_function(self, linkage: str) -> None:
        kind = self.next()
        function = self.function = Function("", kind.text == ".entry", [], [], kind.line)
        function.linkage = linkage
        name = self.define(function, self.scopes.open(), linkage)
        self.scopes.close()
        self.function = None
        known = self.result.functions.get(name.text)
        if known is None or (not known.has_body and function.has_body):
            self.result.functions[name.text] = function
        elif known.has_body:
            self.fail(f"{name.text} is defined twice (first on line {known.line})", name)

    def define(self, function: Function, scope: Scope, linkage: str) -> Token:
        """Results, name, parameters, directives and body of a function; return its name."""
        if self.peek() == "(":
            opening = self.tokens[self.at]
            function.results += self.parameter_list(scope)
            if len(function.results) > 1 and any(result.space == "param" for result in function.results):
                self.fail("a function returns one .param variable, or registers", opening)
        if self.accept(".attribute"):
            self.skip_parentheses()
        name = self.name("a function name")
        function.name, function.line = name.text, name.line
        if name.text in self.scopes.outermost.variables:
            self.fail(f"{name.text} is a variable and a function", name)
        if self.peek() == "(":
            function.parameters += self.parameter_list(scope)
        read_directives(self, function)
        known = self.result.functions.get(name.text)
        if known is not None and (len(known.parameters), len(known.results)) != (
            len(function.parameters),
            len(function.results),
        ):
            self.fail(f"{name.text} has other parameters than on line {known.line}", name)
        if self.peek() != "{":
            bare = not function.is_entry and (self.starts_module_statement() or self.tokens[self.at].kind == "end")
            if not bare and not self.accept(";"):
                self.fail(f"expected the body of {name.text} in braces, or ';', found {self.peek()!r}")
            function.has_body = False
            return name
        if linkage == ".extern":
            self.fail(f"{name.text} is .extern and has a body: leave .extern out", name)
        self.inside_function = True
        self.body()
        self.inside_function = False
        for token, hint in self.scopes.resolve_labels():
            if not self.lost_names:
                self.keep(
                    self.error(f"{token.text} is not a register, variable or label that is visible here{hint}", token)
                )
        self.lost_names = False
        last_line = self.tokens[self.at - 1].line
        function.annotations = [n for n in self.stream.annotations if self.annotated < n[0] <= last_line]
        self.annotated = last_line
        return name

    def parameter_list(self, scope: Scope) -> list[Variable]:
        """Parameters or results of a function, declared in its scope."""
        assert self.function is not None
        self.expect("(")
        variables: list[Variable] = []
        if self.accept(")"):
            return variables
        while True:
            token = self.next()
            if token.text == ".reg":
                if self.function.is_entry:
                    self.fail("a parameter of an .entry is in .param", token)
                variables += self.register_parameters(scope)
            elif token.text == ".param":
                variable, name = parameter(self, self.function.is_entry)
                self.declare(scope, name)
                scope.variables[variable.name] = variable
                variables.append(variable)
            else:
                self.fail(f"expected .param or .reg, found {token.text!r}", token)
            if not self.accept(","):
                break
            if not variables[-1].size:
                self.fail(f"{variables[-1].name} has no size: only the last parameter goes without", token)
        self.expect(")")
        return variables

    def declare(self, scope: Scope, name: Token) -> None:
        """Refuse a name that its scope has already."""
        if scope.taken(name.text):
            self.fail(f"{name.text} is declared twice in one scope", name)

    def register_parameters(self, scope: Scope) -> list[Variable]:
        """``.reg .u32 name`` in a list of parameters; a vector passes each of its components."""
        kind, lanes = self.register_type()
        size = TYPE_BYTES[kind]
        variables = []
        assert self.function is not None
        name = self.name("a register name")
        self.declare(scope, name)
        for register in scope.new_registers(self.function, name.text, kind, lanes):
            variable = Variable(register.name, "reg", size, size, kind)
            variable.register = register
            variables.append(variable)
        return variables

    def body(self) -> None:
        """Statements in braces, and in the braces among them."""
        self.expect("{")
        depth = 0
        while True:
            text = self.tokens[self.at].text
            if text == "{":
                self.at += 1
                self.scopes.open()
                depth += 1
            elif text == "}":
                self.at += 1
                if not depth:
                    return
                self.scopes.close()
                depth -= 1
            else:
                start = self.at
                try:
                    self.statement()
                except PtxSyntaxError as error:
                    if self.tokens[start].kind == "end":
                        raise
                    self.keep(error)
                    self.leave_statement(start)

    def statement(self) -> None:
        token = self.tokens[self.at]
        text = token.text
        if token.kind == "word":
            if self.tokens[self.at + 1].text == ":":
                self.at += 2
                self.label(token)
            else:
                self.instruction()
        elif text == "@":
            self.instruction()
        elif text == ".reg":
            self.at += 1
            self.registers()
        elif text in _SPACES:
            self.parse_variables("")
        elif text == ".loc":
            self.skip_line()
        elif text == ".file":
            self.file()
        elif text == ".pragma":
            self.pragma()
        elif text == ".section":
            self.at += 2
            self.skip_braces()
        elif text in LINKAGE and self.tokens[self.at + 1].text == ".func":
            self.prototype()
        else:
            self.fail(f"expected an instruction, a label or a directive, found {text or 'the end of the text'!r}")

    def prototype(self) -> None:
        """``.extern .func f;`` inside a function."""
        outer = self.function
        linkage = self.next().text
        self.parse_function(linkage)
        self.function, self.inside_function = outer, True

    def label(self, token: Token) -> None:
        assert self.function is not None
        scope = self.scopes.innermost
        self.declare(scope, token)
        if self.accept(".branchtargets"):
            targets = [self.scopes.label(self.word("a label"))]
            while self.accept(","):
                targets.append(self.scopes.label(self.word("a label")))
            self.expect(";")
            scope.tables[token.text] = tuple(targets)
        elif self.peek() in (".callprototype", ".calltargets"):
            if self.tokens[self.at + 1].text == ";":
                self.fail(f"expected what may be called behind {self.peek()}, found ';'")
            while self.next().text != ";":  # what an indirect call may reach; the call itself says what it passes
                pass
        else:
            scope.labels[token.text] = len(self.function.instructions)
            self.function.labels.append((token.line, token.text))

    # -- declarations ------------------------------------------------------------------------------------------------

    def register_type(self) -> tuple[str, int]:
        """``.u32``, or ``.v2 .u32``: the type and the components."""
        lanes = 1
        token = self.next()
        if token.text == ".align":
            alignment(self)
            token = self.next()
        if token.text in (".v2", ".v4"):
            lanes = int(token.text[2:])
            token = self.next()
        kind = token.text[1:]
        if kind not in VARIABLE_TYPES:
            self.fail(f"{token.text} is no register type", token)
        if lanes > 1 and (kind == "pred" or lanes * TYPE_BYTES[kind] > 16):
            self.fail(f"a vector register takes 16 bytes at most and no predicates: .v{lanes} .{kind} is none", token)
        return kind, lanes

    def registers(self) -> None:
        assert self.function is not None
        kind, lanes = self.register_type()
        scope = self.scopes.innermost
        while self.peek() != ";":
            name = self.name("a register name")
            if self.accept("<"):
                count = self.literal("how many registers", bits=32)
                if twice := scope.range_taken(name.text, count):
                    self.fail(f"{twice.rstrip('<')} is declared twice in one scope", name)
                scope.ranges.append((name.text, count, kind, lanes))
                self.expect(">")
            else:
                self.declare(scope, name)
                scope.new_registers(self.function, name.text, kind, lanes)
            if not self.accept(","):
                break
        self.expect(";")

    def parse_variables(self, linkage: str) -> None:
        while self.accept(".attribute"):
            self.skip_parentheses()
        token = self.next()
        space = token.text[1:]
        if self.function is None and space in ("param", "local"):
            self.fail(f"a variable in .{space} is declared in a function", token)
        if linkage == ".common" and space != "global":
            self.fail(f".common is for variables in .global, and this one is in .{space}", token)
        if space == "param":
            space = "frame"  # arguments and results of calls
        scope = self.scopes.innermost
        for variable, name in variable_declarators(self, space, linkage == ".extern"):
            variable.linkage = linkage
            if self.function is None:
                if name.text in SPECIAL_REGISTERS or f"{name.text}.x" in SPECIAL_REGISTERS:
                    self.fail(f"{name.text} is a special register", name)
                self.redeclare(variable, name)
            else:
                self.declare(scope, name)
                self.function.variables.append(variable)
            scope.variables[variable.name] = variable
            for pointer, at in zip(variable.pointers, variable.pointer_tokens, strict=True):
                self.pointed(pointer.symbol, at)
        self.expect(";")

    def redeclare(self, variable: Variable, name: Token) -> None:
        """Refuse a variable of the module that was declared before, unless one is ``.extern`` and they fit."""
        if name.text in self.result.functions:
            self.fail(f"{name.text} is a variable and a function", name)
        known = self.scopes.outermost.variables.get(name.text)
        if known is None:
            return
        if not known.external and not variable.external:
            self.fail(f"{name.text} is declared twice in one scope", name)
        sizes = {known.size, variable.size}
        if (known.space, known.type) != (variable.space, variable.type) or (len(sizes) > 1 and 0 not in sizes):
            self.fail(f"{name.text} was declared otherwise before: .{known.space} .{known.type}", name)
        if known.external and not variable.linkage:
            self.fail(f"{name.text} is .extern in one place: where it is defined it must be .visible or .weak", name)

    def pointed(self, name: str, token: Token) -> None:
        """Refuse an initial value that is no address."""
        function = self.result.functions.get(name)
        found = self.scopes.variable(name)
        if (function is None or function.is_entry) and not isinstance(found, Variable):
            self.fail(f"{name} is no variable or function that was declared before", token)
