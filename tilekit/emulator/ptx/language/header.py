"""The head of a module: ``.version``, ``.target`` and ``.address_size``, once each and in this order (PTX ISA 11.1)."""

from __future__ import annotations

from tilekit.emulator.ptx.language.syntax import PtxModule
from tilekit.emulator.ptx.language.token_reader import TokenReader

_OPTIONS = ("texmode_unified", "texmode_independent", "debug")
"""What may follow the name of the target (PTX ISA 11.1.2), leaving out what targets before sm_20 had."""


def read_header(reader: TokenReader, module: PtxModule) -> None:
    """Take the directives that open a module."""
    if not reader.accept(".version"):
        reader.fail("a module begins with .version, for example .version 8.0")
    version = reader.next()
    if version.kind != "number":
        reader.fail(f"expected a version such as 8.0, found {version.text!r}", version)
    module.version = version.text
    head = reader.tokens[reader.at]
    if not reader.accept(".target"):
        reader.fail("behind .version stands .target, for example .target sm_90a")
    module.target, module.header_line = reader.next().text, head.line
    while reader.accept(","):
        option = reader.word("an option of .target")
        if option.text not in _OPTIONS:
            reader.fail(f"{option.text} is no option of .target: {', '.join(_OPTIONS)}", option)
    if reader.accept(".target"):  # said twice
        again = reader.next()
        if again.text != module.target:
            reader.fail(f"the .target is {module.target} already", again)
    size = reader.tokens[reader.at]
    if reader.accept(".address_size") and reader.literal("the size of an address") != 64:
        reader.fail("only 64-bit addresses are supported: write .address_size 64", size)
