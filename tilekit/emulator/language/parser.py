"""Whole PTX modules, as compilers and people write them, parsed to :mod:`.syntax`.

Names are resolved while parsing: registers, variables and labels belong to the innermost ``{ }`` scope that declares
them, so a fragment pasted many times may repeat its names. Source: PTX ISA, sections 4, 5 and 11.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace

from .constants import CONSTANT_STARTS
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
_ADDED = {kind + bits for kind in "bsu" for bits in ("16", "32", "64")}
"""Types of registers that ``register + constant`` may name."""
_COMPONENTS = ("xr", "yg", "zb", "wa")
"""What the components of a vector are called: ``.x`` or ``.r``, and so on (PTX ISA 6.4.2)."""
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

    registers: dict[str, tuple[Register, ...]] = field(default_factory=dict)
    """Under each name one register, or the components of a vector."""
    ranges: list[tuple[str, int, str, int]] = field(default_factory=list)
    """Prefix, how many, type and components of ``name<count>``."""
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
                variables += self.register_parameters(scope)
            elif token.text == ".param":
                variables.extend(variable_declarators(self, "param", False, single=True))
                scope.variables[variables[-1].name] = variables[-1]
            else:
                self.fail(f"expected .param or .reg, found {token.text!r}", token)
            self.accept(",")
        return variables

    def register_parameters(self, scope: _Scope) -> list[Variable]:
        """``.reg .u32 name`` in a list of parameters; a vector passes each of its components."""
        kind, lanes = self.register_type()
        size = TYPE_BYTES[kind]
        variables = []
        for register in self.new_registers(scope, self.word("a register name").text, kind, lanes):
            variable = Variable(register.name, "reg", size, size, kind)
            variable.register = register
            variables.append(variable)
        return variables

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

    def register_type(self) -> tuple[str, int]:
        """``.u32``, or ``.v2 .u32``: the type and the components."""
        lanes = 1
        token = self.next()
        if token.text == ".align":
            self.integer()
            token = self.next()
        if token.text in (".v2", ".v4"):
            lanes = int(token.text[2:])
            token = self.next()
        kind = token.text[1:]
        if kind not in TYPE_BYTES:
            self.fail(f"{token.text} is no register type", token)
        if lanes > 1 and (kind == "pred" or lanes * TYPE_BYTES[kind] > 16):
            self.fail(f"a vector register takes 16 bytes at most and no predicates: .v{lanes} .{kind} is none", token)
        return kind, lanes

    def registers(self) -> None:
        kind, lanes = self.register_type()
        scope = self.scopes[-1]
        while True:
            name = self.word("a register name")
            if self.accept("<"):
                count = self.next()
                if count.kind != "number" or not count.text.isdigit():
                    self.fail(f"expected how many registers, found {count.text!r}", count)
                scope.ranges.append((name.text, int(count.text), kind, lanes))
                self.expect(">")
            else:
                if name.text in scope.registers:
                    self.fail(f"register {name.text} is declared twice in one scope", name)
                self.new_registers(scope, name.text, kind, lanes)
            if not self.accept(","):
                break
        self.expect(";")

    def new_registers(self, scope: _Scope, name: str, kind: str, lanes: int = 1) -> tuple[Register, ...]:
        assert self.function is not None
        names = [name] if lanes == 1 else [f"{name}.{component[0]}" for component in _COMPONENTS[:lanes]]
        first = len(self.function.registers)
        created = tuple(Register(each, kind, first + n) for n, each in enumerate(names))
        self.function.registers += created
        scope.registers[name] = created
        return created

    def declared_registers(self, name: str) -> tuple[Register, ...]:
        """The register of this name, or the components of the vector; empty if there is none."""
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return scope.registers[name]
            for prefix, count, kind, lanes in scope.ranges:
                tail = name[len(prefix) :]
                if name.startswith(prefix) and tail.isdigit() and int(tail) < count and str(int(tail)) == tail:
                    return self.new_registers(scope, name, kind, lanes)
        return ()

    def find_register(self, name: str) -> Register | None:
        found = self.declared_registers(name)
        return found[0] if len(found) == 1 else None

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
        if token.text == "(" and opcode == "call":
            self.at += 1
            items = []
            while not self.accept(")"):
                item = self.operand(opcode)
                items += item.items if isinstance(item, VectorOperand) else (item,)  # a vector passes its components
                if not self.accept(",") and self.peek() != ")":
                    self.fail("expected ',' or ')' in a list")
            return CallList(tuple(items))
        operand = self.simple(opcode)
        if self.accept("|"):
            return PairOperand(operand, self.simple(opcode))
        return operand

    def simple(self, opcode: str) -> Operand:
        token = self.next()
        before_name = self.tokens[self.at].kind == "word" and self.peek() != "WARP_SZ"
        if token.text == "!" and before_name:
            name = self.word("a predicate register")
            register = self.find_register(name.text)
            if register is None:
                self.fail(f"{name.text} is not a register", name)
            return RegisterOperand(register, negated=True)
        if token.text == "-" and before_name:
            operand = self.named(self.next(), opcode)
            if not isinstance(operand, RegisterOperand):
                self.fail("expected a number or a register after '-'", token)
            return replace(operand, minus=True)
        if token.kind == "number" or token.text in CONSTANT_STARTS or token.text == "WARP_SZ":
            self.at -= 1
            return self.constant()
        if token.kind != "word":
            self.fail(f"expected an operand, found {token.text!r}", token)
        if token.text == "_":
            return Sink()
        operand = self.named(token, opcode)
        if isinstance(operand, RegisterOperand) and self.accept("+"):
            return self.sum(operand.register, token)
        return operand

    def sum(self, register: Register, token: Token) -> RegisterOperand:
        """``register + constant`` as a source, which ptxas adds up before the instruction."""
        assert self.function is not None
        addend = self.integer()
        if register.type not in _ADDED:
            self.fail(f"a constant is added to an integer register, and {register.name} is .{register.type}", token)
        total = self.new_registers(_Scope(), f"{register.name}+{addend}", register.type)[0]
        operands = (RegisterOperand(total), RegisterOperand(register), Immediate(addend))
        kind = f"s{register.bits}"
        text = f"add.{kind} {total.name}, {register.name}, {addend};"
        self.function.instructions.append(Instruction("add", (kind,), operands, None, token.line, token.column, text))
        return RegisterOperand(total)

    def named(self, token: Token, opcode: str) -> Operand:
        name = token.text
        registers = self.declared_registers(name)
        after = self.tokens[self.at]
        suffixed = after.kind == "dotted" and after.start == token.end
        if len(registers) > 1:
            items = tuple(RegisterOperand(register) for register in registers)
            return self.component(items, name) if suffixed else VectorOperand(items)
        if registers:
            if opcode.startswith("v") and suffixed:
                return RegisterOperand(registers[0], part=self.next().text[1:])
            return RegisterOperand(registers[0])
        if name.startswith("%"):
            if suffixed:
                name += self.next().text
            if name in SPECIAL_REGISTERS:
                return SpecialRegister(name)
            if f"{name}.w" in SPECIAL_REGISTERS:  # %tid and the like as a whole
                return VectorOperand(tuple(SpecialRegister(f"{name}.{letter}") for letter in "xyzw"))
            near = difflib.get_close_matches(name, [*self.visible_names(), *SPECIAL_REGISTERS], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.fail(f"{name} is not a declared or special register{hint}", token)
        for scope in reversed(self.scopes):
            if name in scope.variables:
                variable = scope.variables[name]
                if opcode and self.accept("["):  # an element as the place that is read or written
                    index = self.integer()
                    self.expect("]")
                    return AddressOperand(SymbolOperand(variable), index * TYPE_BYTES[variable.type])
                return SymbolOperand(variable, self.addend())
            if name in scope.tables:
                return VectorOperand(scope.tables[name])
        if name in self.result.functions or opcode == "call":
            return FunctionName(name)
        return self.label_reference(token)

    def component(self, items: tuple[RegisterOperand, ...], name: str) -> RegisterOperand:
        token = self.next()
        found = [n for n, letters in enumerate(_COMPONENTS[: len(items)]) if token.text[1:] in tuple(letters)]
        if not found:
            legal = ", ".join(f".{letters[0]}" for letters in _COMPONENTS[: len(items)])
            self.fail(f"{name} has the components {legal}, not {token.text}", token)
        return items[found[0]]

    def visible_names(self) -> list[str]:
        return [name for scope in self.scopes for name in scope.registers]

    def address(self) -> AddressOperand:
        self.expect("[")
        base: Operand
        token = self.tokens[self.at]
        if token.kind == "number" or token.text in CONSTANT_STARTS:
            base = Immediate(self.integer())
        else:
            base = self.named(self.word("an address"), "")
        addend = self.addend()
        coordinates = None
        while self.accept(","):
            vector = self.operand("")
            if isinstance(vector, VectorOperand):
                coordinates = vector.items
            elif self.peek() != ",":
                self.fail("expected a vector of coordinates after ',' in an address")
        self.expect("]")
        return AddressOperand(base, addend, coordinates)

    def addend(self) -> int:
        """``+ constant`` behind a name, or ``- constant``; 0 where there is none."""
        if not self.accept("+") and self.peek() != "-":
            return 0
        return self.integer()
