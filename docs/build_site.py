"""What `mkdocs build` does besides: pages and files from outside of ``docs``, a navigation that bears a missing page.

README, CONTRIBUTING and CHANGELOG become pages. A link that leads out of ``docs`` to a file of the repository leads to
a copy of it on the site; one to a folder becomes plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Leave out of the navigation what does not exist."""
    config["nav"] = _existing(config["nav"]) if config["nav"] else None
    return config


def _existing(entries: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        ((title, target),) = entry.items() if isinstance(entry, dict) else [(None, entry)]
        if isinstance(target, list):
            kept.append({title: _existing(target)})
        elif target in PAGES.values() or (ROOT / "docs" / target).exists():
            kept.append(entry)
    return kept


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside of the folder, and the files that pages link to."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    for page in [file for file in files if file.src_uri.endswith(".md")]:
        for linked in _linked(page.content_string, _home(page.src_uri)):
            target = _copy(linked)
            if files.get_file_from_path(target) is None:
                files.append(File.generated(config, target, content=linked.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Have links lead to what they name on the site."""
    home = _home(page.file.src_uri)
    depth = page.file.src_uri.count("/")

    def lead(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = _path(home, target)
        if path is None:
            return words
        name = path.relative_to(ROOT).as_posix()
        if name in PAGES:
            return f"[{words}]({'../' * depth}{PAGES[name]}{anchor})"
        if name.startswith("docs/") and not name.endswith(".py"):
            return f"[{words}]({'../' * depth}{name.removeprefix('docs/')}{anchor})"
        return f"[{words}]({'../' * depth}{_copy(path)})" if path.is_file() else words

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(lead, part) for part in parts)


def _home(uri: str) -> Path:
    """The folder of the repository that a page's links begin at."""
    return ROOT if uri in PAGES.values() else (ROOT / "docs" / uri).parent


def _path(home: Path, target: str) -> Path | None:
    path = (home / target).resolve()
    return path if path.exists() and path.is_relative_to(ROOT) else None


def _linked(markdown: str, home: Path) -> set[Path]:
    """The files outside of the site that a page links to."""
    paths = {_path(home, found[2]) for found in _LINK.finditer(markdown)}
    names = {path: path.relative_to(ROOT).as_posix() for path in paths if path is not None and path.is_file()}
    return {p for p, name in names.items() if name not in PAGES and (not name.startswith("docs/") or p.suffix == ".py")}


def _copy(path: Path) -> str:
    """Where a file of the repository lies on the site; a page there would be built, so it is text."""
    name = path.relative_to(ROOT).as_posix()
    return f"source/{name}.txt" if path.suffix == ".md" else f"source/{name}"
