"""Machine code of gfx942 and gfx950 as assembly text that LLVM assembles to the same bytes.

From the bottom up: `formats` (where an instruction's fields lie), `table` (what each opcode takes; learned from LLVM's
assembler, in ``table.txt``), `codes` (operands' codes as text), `fields` (an instruction's fields, and which of them
its text has used), `scalar`, `vector`, `memory` and `matrix` (the text of each family), `decoder` (bytes to
instructions).
"""
