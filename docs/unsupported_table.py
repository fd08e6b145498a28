"""Write the table of ``emulator-unsupported.md``: ``python docs/unsupported_table.py`` after forms change.

The tests fail when the page is out of date.
"""

from __future__ import annotations

from pathlib import Path

from tilekit.emulator.ptx.ops.table import refusals

PAGE = Path(__file__).resolve().with_name("emulator-unsupported.md")
HEAD = """# What the emulator refuses

The emulator knows the instruction forms below and does not execute them. Loading text that contains one raises
`UnsupportedInstruction`, which names the line, the form and the reason; nothing is ever skipped. A form that is
neither here nor executed is an unknown one, and an error as well.

Notation: a modifier in braces may be left out, `(.a|.b)` is a choice. Operands: `d` a result, `a` a source, `{…}` a
vector, `[a]` an address, `[t]` a tensor map with coordinates, `#` a constant, `?` optional.

| form | why |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [f"| `{form.replace('|', chr(92) + '|')}` | {reason} |" for form, reason in refusals()]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
