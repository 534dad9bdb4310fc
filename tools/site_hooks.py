"""What MkDocs is told while it builds the site: which pages are made, and where links lead.

The sources are what people read in the repository: ``docs/*.md`` and the files at its top. So links
there lead from file to file; here they are led to the pages of the site, and those to source code,
which is not part of the site, become plain text.
"""

from __future__ import annotations

import logging
import pathlib
import re
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "src"))

import site_api
import site_notebooks
import site_tables
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Files outside of docs/ that are pages.
TOP = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "ROADMAP.md": "roadmap.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}
# Pages that a checkout may lack.
OPTIONAL = ("text.md", "audio.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
GENERATED = re.compile(r"<!-- generated: (\w+) -->")

logging.getLogger("weft").setLevel(logging.ERROR)


def on_config(config: Any) -> Any:
    """Leave pages out of the navigation that are not there; add those of the reference."""
    for section in config.nav:
        for title, pages in section.items():
            if isinstance(pages, list):
                section[title] = [page for page in pages if not _absent(next(iter(page.values())))]
            elif pages == "api.md":
                made = [{title: f"api/{name}.md"} for name, title in site_api.titles().items()]
                section[title] = [{"Overview": "api.md"}, *made]
    return config


def _absent(path: str) -> bool:
    return path in OPTIONAL and not (ROOT / "docs" / path).exists()


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    made = {page: (ROOT / source).read_text() for source, page in TOP.items() if page != "index.md"}
    made |= {f"api/{name}.md": text for name, text in site_api.pages().items()}
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            path = pathlib.Path(str(file.abs_src_path))
            made[file.src_uri.replace(".ipynb", ".md")] = site_notebooks.page(path)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put in the tables that are made, and lead links to pages of the site."""
    source = page.file.src_uri
    markdown = GENERATED.sub(lambda found: site_tables.table(found[1]), markdown)
    if source.startswith("api/"):
        return markdown
    pieces = re.split(r"(^```.*?^```$)", markdown, flags=re.S | re.M)
    return "".join(
        piece if i % 2 else LINK.sub(lambda found: _led(found, source), piece)
        for i, piece in enumerate(pieces)
    )


def _led(found: re.Match[str], source: str) -> str:
    """A link of the repository as one of the site."""
    picture, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if ":" in target or not path:
        return found[0]
    origin = next((file for file, page in TOP.items() if page == source), f"docs/{source}")
    came_from_top = not origin.startswith("docs/") and source != "index.md"
    base = (ROOT / origin).parent if came_from_top else (ROOT / "docs" / source).parent
    place = (base / path).resolve()
    if not place.is_relative_to(ROOT):
        return found[0]
    inside = place.relative_to(ROOT).as_posix()
    if inside in TOP:
        page = TOP[inside]
    elif inside.startswith("docs/") and (place.exists() or not came_from_top):
        page = inside.removeprefix("docs/")
    else:
        return text  # source code: named, not linked
    up = "../" * source.count("/")
    return f"{picture}[{text}]({up}{page}{'#' + anchor if anchor else ''})"
