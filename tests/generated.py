"""The generated tables of a page, each between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def with_tables(page: str, tables: Mapping[str, Iterable[str]]) -> str:
    """The page with these tables, given line by line, in the place of those it has."""
    for name, lines in tables.items():
        found = re.search(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", page, re.DOTALL)
        assert found, f"no <!-- {name} --> in the page"
        page = page[: found.start()] + "".join(f"{line}\n" for line in lines) + page[found.end() :]
    return page
