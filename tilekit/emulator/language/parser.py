"""Whole PTX modules, as compilers and people write them, parsed to :mod:`.syntax`.

Names are resolved while parsing, in the :mod:`.scopes` that are open, so a fragment pasted many times may repeat its
names. Source: PTX ISA, sections 4, 5 and 11.
"""

from __future__ import annotations

from dataclasses import replace

from .constants import CONSTANT_STARTS
from .declarations import variable_declarators
from .lexer import Token, TokenStream, tokenize
from .scopes import COMPONENTS, Scope, Scopes
from .special_registers import SPECIAL_REGISTERS
from .syntax import (
    TYPE_BYTES,
    AddressOperand,
    CallList,
    Function,
    FunctionName,
    Immediate,
    Instruction,
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
        self.scopes = Scopes()
        self.function: Function | None = None
        self.annotated = 0

    # -- module ------------------------------------------------------------------------------------------------------

    def module(self) -> PtxModule:
        while self.tokens[self.at].kind != "end":
            self.module_statement()
        self.result.variables = self.scopes.outermost.variables
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
        function = self.function = Function("", kind.text == ".entry", [], [], kind.line)
        with self.scopes.opened() as scope:
            name = self.define(function, scope)
        self.function = None
        known = self.result.functions.get(name.text)
        if known is None or not known.has_body:
            self.result.functions[name.text] = function
        elif function.has_body:
            self.fail(f"{name.text} is defined twice (first on line {known.line})", name)

    def define(self, function: Function, scope: Scope) -> Token:
        """Results, name, parameters, directives and body of a function; return its name."""
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
            self.body()
            nowhere = self.scopes.resolve_labels()
            if nowhere is not None:
                token, hint = nowhere
                self.fail(f"{token.text} is not a register, variable or label that is visible here{hint}", token)
            last_line = self.tokens[self.at - 1].line
            function.annotations = [n for n in self.stream.annotations if self.annotated < n[0] <= last_line]
            self.annotated = last_line
        return name

    def parameter_list(self, scope: Scope) -> list[Variable]:
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

    def register_parameters(self, scope: Scope) -> list[Variable]:
        """``.reg .u32 name`` in a list of parameters; a vector passes each of its components."""
        kind, lanes = self.register_type()
        size = TYPE_BYTES[kind]
        variables = []
        assert self.function is not None
        for register in scope.new_registers(self.function, self.word("a register name").text, kind, lanes):
            variable = Variable(register.name, "reg", size, size, kind)
            variable.register = register
            variables.append(variable)
        return variables

    def body(self) -> None:
        """Statements up to the closing brace of this scope."""
        while not self.accept("}"):
            self.statement()

    def statement(self) -> None:
        token = self.tokens[self.at]
        text = token.text
        if text == "{":
            self.at += 1
            with self.scopes.opened():
                self.body()
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
        scope = self.scopes.innermost
        if self.peek() == ".branchtargets":
            self.at += 1
            targets = []
            while not self.accept(";"):
                targets.append(self.scopes.label(self.word("a label")))
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
        assert self.function is not None
        kind, lanes = self.register_type()
        scope = self.scopes.innermost
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
                scope.new_registers(self.function, name.text, kind, lanes)
            if not self.accept(","):
                break
        self.expect(";")

    def find_register(self, name: str) -> Register | None:
        found = self.scopes.registers(self.function, name)
        return found[0] if len(found) == 1 else None

    def parse_variables(self, external: bool) -> None:
        space = self.next().text[1:]
        if space == "param":
            space = "frame"  # arguments and results of calls
        for variable in variable_declarators(self, space, external):
            self.scopes.innermost.variables[variable.name] = variable
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
        total = Scope().new_registers(self.function, f"{register.name}+{addend}", register.type)[0]
        operands = (RegisterOperand(total), RegisterOperand(register), Immediate(addend))
        kind = f"s{register.bits}"
        text = f"add.{kind} {total.name}, {register.name}, {addend};"
        self.function.instructions.append(Instruction("add", (kind,), operands, None, token.line, token.column, text))
        return RegisterOperand(total)

    def named(self, token: Token, opcode: str) -> Operand:
        name = token.text
        registers = self.scopes.registers(self.function, name)
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
            hint = self.scopes.close_to(name, tuple(SPECIAL_REGISTERS))
            self.fail(f"{name} is not a declared or special register{hint}", token)
        found = self.scopes.variable(name)
        if isinstance(found, tuple):
            return VectorOperand(found)
        if found is not None:
            if opcode and self.accept("["):  # an element as the place that is read or written
                index = self.integer()
                self.expect("]")
                return AddressOperand(SymbolOperand(found), index * TYPE_BYTES[found.type])
            return SymbolOperand(found, self.addend())
        if name in self.result.functions or opcode == "call":
            return FunctionName(name)
        return self.scopes.label(token)

    def component(self, items: tuple[RegisterOperand, ...], name: str) -> RegisterOperand:
        token = self.next()
        found = [n for n, letters in enumerate(COMPONENTS[: len(items)]) if token.text[1:] in tuple(letters)]
        if not found:
            legal = ", ".join(f".{letters[0]}" for letters in COMPONENTS[: len(items)])
            self.fail(f"{name} has the components {legal}, not {token.text}", token)
        return items[found[0]]

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
