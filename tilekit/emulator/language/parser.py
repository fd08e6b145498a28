"""Whole PTX modules, as compilers and people write them, parsed to :mod:`.syntax`.

Names are resolved while parsing: registers, variables and labels belong to the innermost ``{ }`` scope that declares
them, so a fragment pasted many times may repeat its names. Source: PTX ISA, sections 4, 5 and 11.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace

from .constants import parse_number
from .declarations import variable_declarators
from .lexer import Token, TokenStream, tokenize
from .special_registers import SPECIAL_REGISTERS
from .syntax import (
    TYPE_BYTES,
    AddressOperand,
    CallList,
    Function,
    FunctionName,
    Immediate,
    Instruction,
    LabelOperand,
    Operand,
    PairOperand,
    PtxModule,
    Register,
    RegisterOperand,
    Sink,
    SpecialRegister,
    SymbolOperand,
    Variable,
    VectorOperand,
)
from .token_reader import TokenReader

_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".shared", ".global", ".const", ".local", ".param"}
_DIRECTIVES = {
    *(".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster"),
    *(
        ".maxclusterrank",
        ".explicitcluster",
        ".blocksareclusters",
        ".noreturn",
        ".abi_preserve",
        ".abi_preserve_control",
    ),
}


@dataclass(slots=True)
class _Scope:
    """What one ``{ }`` declares."""

    registers: dict[str, Register] = field(default_factory=dict)
    ranges: list[tuple[str, int, str]] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[LabelOperand, ...]] = field(default_factory=dict)


def parse_module(text: str) -> PtxModule:
    """Parse PTX text.

    Raises
    ------
    PtxSyntaxError
        Naming line, column and what was expected.
    """
    return _Parser(tokenize(text)).module()


class _Parser(TokenReader):
    def __init__(self, stream: TokenStream) -> None:
        super().__init__(stream)
        self.result = PtxModule("", "", stream.text)
        self.scopes: list[_Scope] = []
        self.pending: list[tuple[LabelOperand, list[_Scope], Token]] = []
        self.function: Function | None = None
        self.annotated = 0

    # -- module ------------------------------------------------------------------------------------------------------

    def module(self) -> PtxModule:
        self.scopes = [_Scope()]
        while self.tokens[self.at].kind != "end":
            self.module_statement()
        self.result.variables = self.scopes[0].variables
        return self.result

    def module_statement(self) -> None:
        token = self.tokens[self.at]
        if token.text == ".version":
            self.at += 1
            self.result.version = self.next().text
        elif token.text == ".target":
            self.at += 1
            self.result.target, self.result.header_line = self.next().text, token.line
            while self.accept(","):
                self.next()
        elif token.text == ".address_size":
            self.at += 1
            if self.integer() != 64:
                self.fail("only 64-bit addresses are supported: write .address_size 64", token)
        elif token.text in (".file", ".loc", ".pragma"):
            self.skip_line()
        elif token.text == ".alias":
            self.alias()
        elif token.text == ".section":
            self.at += 2
            self.skip_braces()
        elif token.text == ";":
            self.at += 1
        else:
            self.declaration()

    def declaration(self) -> None:
        external = False
        while self.peek() in _LINKAGE:
            external |= self.next().text == ".extern"
        token = self.tokens[self.at]
        if token.text in (".entry", ".func"):
            self.parse_function()
        elif token.text in _SPACES:
            self.parse_variables(external)
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

    def parse_function(self) -> None:
        kind = self.next()
        scope = _Scope()
        self.scopes.append(scope)
        function = self.function = Function("", kind.text == ".entry", [], [], kind.line)
        if self.peek() == "(":
            function.results += self.parameter_list(scope)
        if self.accept(".attribute"):
            self.skip_parentheses()
        name = self.word("a function name")
        function.name, function.line = name.text, name.line
        if self.peek() == "(":
            function.parameters += self.parameter_list(scope)
        while self.tokens[self.at].kind == "dotted":
            directive = self.next()
            if directive.text == ".pragma":
                self.skip_line()
            elif directive.text in _DIRECTIVES:
                numbers = []
                while self.tokens[self.at].kind == "number":
                    numbers.append(self.integer())
                    self.accept(",")
                function.directives[directive.text[1:]] = tuple(numbers)
            else:
                self.fail(f"unknown directive {directive.text} of function {name.text}", directive)
        if self.accept(";"):
            function.has_body = False
        else:
            self.expect("{")
            self.body(1)
            self.resolve_labels()
            last_line = self.tokens[self.at - 1].line
            function.annotations = [n for n in self.stream.annotations if self.annotated < n[0] <= last_line]
            self.annotated = last_line
        self.scopes.pop()
        self.function = None
        known = self.result.functions.get(name.text)
        if known is None or not known.has_body:
            self.result.functions[name.text] = function
        elif function.has_body:
            self.fail(f"{name.text} is defined twice (first on line {known.line})", name)

    def parameter_list(self, scope: _Scope) -> list[Variable]:
        """Parameters or results of a function, declared in its scope."""
        self.expect("(")
        variables: list[Variable] = []
        while not self.accept(")"):
            token = self.next()
            if token.text == ".reg":
                variables.append(self.register_parameter(scope))
            elif token.text == ".param":
                variables.extend(variable_declarators(self, "param", False, single=True))
                scope.variables[variables[-1].name] = variables[-1]
            else:
                self.fail(f"expected .param or .reg, found {token.text!r}", token)
            self.accept(",")
        return variables

    def register_parameter(self, scope: _Scope) -> Variable:
        """``.reg .u32 name`` in a list of parameters."""
        kind = self.next()
        if kind.text[1:] not in TYPE_BYTES:
            self.fail(f"{kind.text} is no register type", kind)
        name = self.word("a register name")
        size = TYPE_BYTES[kind.text[1:]]
        variable = Variable(name.text, "reg", size, size, kind.text[1:])
        variable.register = self.new_register(scope, name.text, kind.text[1:])
        return variable

    def body(self, depth: int) -> None:
        """Statements up to the closing brace of this scope."""
        while not self.accept("}"):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        token = self.tokens[self.at]
        text = token.text
        if text == "{":
            self.at += 1
            self.scopes.append(_Scope())
            self.body(depth + 1)
            self.scopes.pop()
        elif text == ";":
            self.at += 1
        elif text == ".reg":
            self.at += 1
            self.registers()
        elif text in _LINKAGE or text in _SPACES:
            external = False
            while self.peek() in _LINKAGE:
                external |= self.next().text == ".extern"
            self.parse_variables(external)
        elif text in (".loc", ".file"):
            self.skip_line()
        elif text == ".pragma":
            while self.next().text != ";":
                pass
        elif text == ".section":
            self.at += 2
            self.skip_braces()
        elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
            self.at += 2
            self.label(token)
        elif text == "@" or token.kind == "word":
            self.instruction()
        else:
            self.fail(f"expected an instruction, a label or a directive, found {text or 'the end of the text'!r}")

    def label(self, token: Token) -> None:
        assert self.function is not None
        scope = self.scopes[-1]
        if self.peek() == ".branchtargets":
            self.at += 1
            targets = []
            while not self.accept(";"):
                targets.append(self.label_reference(self.word("a label")))
                self.accept(",")
            scope.tables[token.text] = tuple(targets)
        elif self.peek() in (".callprototype", ".calltargets"):
            while self.next().text != ";":  # what an indirect call may reach; the call itself says what it passes
                pass
        elif token.text in scope.labels:
            self.fail(f"label {token.text} is defined twice in one scope", token)
        else:
            scope.labels[token.text] = len(self.function.instructions)
            self.function.labels.append((token.line, token.text))

    def label_reference(self, token: Token) -> LabelOperand:
        operand = LabelOperand(token.text)
        self.pending.append((operand, list(self.scopes), token))
        return operand

    def resolve_labels(self) -> None:
        for operand, scopes, token in self.pending:
            for scope in reversed(scopes):
                if operand.name in scope.labels:
                    operand.position = scope.labels[operand.name]
                    break
            else:
                names = [name for scope in scopes for name in (*scope.labels, *scope.registers, *scope.variables)]
                near = difflib.get_close_matches(operand.name, names, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fail(f"{operand.name} is not a register, variable or label that is visible here{hint}", token)
        self.pending.clear()

    # -- declarations ------------------------------------------------------------------------------------------------

    def registers(self) -> None:
        token = self.next()
        kind = token.text[1:]
        if kind not in TYPE_BYTES:
            self.fail(f"{token.text} is no register type", token)
        scope = self.scopes[-1]
        while True:
            name = self.word("a register name")
            if self.accept("<"):
                scope.ranges.append((name.text, self.integer(), kind))
                self.expect(">")
            else:
                if name.text in scope.registers:
                    self.fail(f"register {name.text} is declared twice in one scope", name)
                self.new_register(scope, name.text, kind)
            if not self.accept(","):
                break
        self.expect(";")

    def new_register(self, scope: _Scope, name: str, kind: str) -> Register:
        assert self.function is not None
        register = Register(name, kind, len(self.function.registers))
        self.function.registers.append(register)
        scope.registers[name] = register
        return register

    def find_register(self, name: str) -> Register | None:
        for scope in reversed(self.scopes):
            register = scope.registers.get(name)
            if register is not None:
                return register
            for prefix, count, kind in scope.ranges:
                tail = name[len(prefix) :]
                if name.startswith(prefix) and tail.isdigit() and int(tail) < count and str(int(tail)) == tail:
                    return self.new_register(scope, name, kind)
        return None

    def parse_variables(self, external: bool) -> None:
        space = self.next().text[1:]
        if space == "param":
            space = "frame"  # arguments and results of calls
        for variable in variable_declarators(self, space, external):
            self.scopes[-1].variables[variable.name] = variable
            if self.function is not None:
                self.function.variables.append(variable)
        self.expect(";")

    # -- instructions ------------------------------------------------------------------------------------------------

    def instruction(self) -> None:
        assert self.function is not None
        guard = None
        first = self.tokens[self.at]
        if self.accept("@"):
            negated = self.accept("!")
            name = self.word("a predicate register")
            register = self.find_register(name.text)
            if register is None or register.type != "pred":
                self.fail(f"the guard {name.text} is not a predicate register", name)
            guard = RegisterOperand(register, negated)
        opcode = self.word("an opcode")
        modifiers = []
        end = opcode.end
        while self.tokens[self.at].kind == "dotted" and self.tokens[self.at].start == end:
            token = self.next()
            end = token.end
            modifiers.append(token.text[1:])
        operands: list[Operand] = []
        while not self.accept(";"):
            operands.append(self.operand(opcode.text))
            if not self.accept(","):
                self.expect(";")
                break
        last = self.tokens[self.at - 1]
        text = " ".join(self.stream.text[first.start : last.end].split())
        provenance = self.stream.provenance.get(last.line) or self.stream.provenance.get(first.line, "")
        self.function.instructions.append(
            Instruction(
                opcode.text, tuple(modifiers), tuple(operands), guard, opcode.line, opcode.column, text, provenance
            )
        )

    def operand(self, opcode: str) -> Operand:
        token = self.tokens[self.at]
        if token.text == "[":
            return self.address()
        if token.text == "{":
            self.at += 1
            items = []
            while not self.accept("}"):
                items.append(self.operand(opcode))
                if not self.accept(",") and self.peek() != "}":
                    self.fail("expected ',' or '}' in a vector")
            return VectorOperand(tuple(items))
        if token.text == "(":
            self.at += 1
            items = []
            while not self.accept(")"):
                items.append(self.operand(opcode))
                if not self.accept(",") and self.peek() != ")":
                    self.fail("expected ',' or ')' in a list")
            return CallList(tuple(items))
        operand = self.simple(opcode)
        if self.accept("|"):
            return PairOperand(operand, self.simple(opcode))
        return operand

    def simple(self, opcode: str) -> Operand:
        token = self.next()
        if token.text == "!":
            name = self.word("a predicate register")
            register = self.find_register(name.text)
            if register is None:
                self.fail(f"{name.text} is not a register", name)
            return RegisterOperand(register, negated=True)
        if token.text == "-" and self.tokens[self.at].kind == "word":
            operand = self.named(self.next(), opcode)
            if not isinstance(operand, RegisterOperand):
                self.fail("expected a number or a register after '-'", token)
            return replace(operand, minus=True)
        if token.text == "-":
            return self.number(negative=True)
        if token.kind == "number":
            self.at -= 1
            return self.number(negative=False)
        if token.kind != "word":
            self.fail(f"expected an operand, found {token.text!r}", token)
        if token.text == "_":
            return Sink()
        return self.named(token, opcode)

    def named(self, token: Token, opcode: str) -> Operand:
        name = token.text
        register = self.find_register(name)
        if register is not None:
            after = self.tokens[self.at]
            if opcode.startswith("v") and after.kind == "dotted" and after.start == token.end:
                return RegisterOperand(register, part=self.next().text[1:])
            return RegisterOperand(register)
        if name.startswith("%"):
            if self.tokens[self.at].kind == "dotted" and self.tokens[self.at].start == token.end:
                name += self.next().text
            if name in SPECIAL_REGISTERS:
                return SpecialRegister(name)
            near = difflib.get_close_matches(name, [*self.visible_names(), *SPECIAL_REGISTERS], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.fail(f"{name} is not a declared or special register{hint}", token)
        for scope in reversed(self.scopes):
            if name in scope.variables:
                addend = 0
                if self.peek() in ("+", "-") and self.tokens[self.at + 1].kind == "number":
                    sign = 1 if self.next().text == "+" else -1
                    addend = sign * parse_number(self.next().text)[0]
                return SymbolOperand(scope.variables[name], addend)
            if name in scope.tables:
                return VectorOperand(scope.tables[name])
        if name in self.result.functions or opcode == "call":
            return FunctionName(name)
        if name == "WARP_SZ":
            return Immediate(32)
        return self.label_reference(token)

    def visible_names(self) -> list[str]:
        return [name for scope in self.scopes for name in scope.registers]

    def address(self) -> AddressOperand:
        self.expect("[")
        base: Operand
        token = self.tokens[self.at]
        if token.kind == "number" or token.text == "-":
            base = Immediate(self.integer())
        else:
            base = self.named(self.word("an address"), "")
        addend = 0
        while self.peek() in ("+", "-"):
            sign = 1 if self.next().text == "+" else -1
            addend += sign * self.integer_atom()
        coordinates = None
        while self.accept(","):
            vector = self.operand("")
            if isinstance(vector, VectorOperand):
                coordinates = vector.items
            elif self.peek() != ",":
                self.fail("expected a vector of coordinates after ',' in an address")
        self.expect("]")
        return AddressOperand(base, addend, coordinates)

    def integer_atom(self) -> int:
        negative = self.accept("-")
        operand = self.number(negative=negative)
        if operand.kind != "int":
            self.fail("an address offset is an integer")
        return operand.value
