"""Pages of text and pictures that need nothing else: no network, no script, no fonts."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import os
from importlib import resources

from weft.io import atomic

__all__ = ["Report", "standalone"]


@functools.cache
def style() -> str:
    """The style of pages and pictures."""
    return resources.files(__name__.rpartition(".")[0]).joinpath("style.css").read_text("utf-8")


def standalone(picture: str) -> str:
    """A picture as the text of an SVG file, with its style inside."""
    start, end, rest = picture.partition(">")
    return f"{start}{end}<style>{html.escape(style(), quote=False)}</style>{rest}\n"


class Report:
    """A page that grows by sections; every text in it is escaped, except pictures.

    >>> report = Report("Results", "Two runs on one machine.")
    >>> report.section("Loss", "Lower is better.")
    >>> "<h2>Loss</h2>" in report.html()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self.title, self.lead = title, lead
        self._parts: list[str] = []

    def section(self, heading: str, *texts: str) -> None:
        """Begin a section, with paragraphs of text."""
        self._parts.append(f"<h2>{html.escape(heading)}</h2>")
        self._parts += [f"<p>{html.escape(text)}</p>" for text in texts]

    def text(self, words: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html.escape(words)}</p>")

    def pictures(self, *pictures: str) -> None:
        """Add pictures, side by side where there is room."""
        inside = "".join(f"<figure>{picture}</figure>" for picture in pictures)
        self._parts.append(f'<div class="row">{inside}</div>')

    def facts(self, facts: dict[str, str]) -> None:
        """Add a few numbers with their names, large."""
        cells = (
            f"<div><dd>{html.escape(value)}</dd><dt>{html.escape(name)}</dt></div>"
            for name, value in facts.items()
        )
        self._parts.append(f'<dl class="facts">{"".join(cells)}</dl>')

    def output(self, words: str) -> None:
        """Add what a program printed."""
        self._parts.append(f"<pre>{html.escape(words)}</pre>")

    def link(self, address: str, words: str, about: str = "") -> None:
        """Add a link to a file beside the page."""
        anchor = f'<a href="{html.escape(address)}">{html.escape(words)}</a>'
        self._parts.append(f'<p class="link">{anchor} {html.escape(about)}</p>')

    def html(self) -> str:
        """The text of the page."""
        digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
        title = html.escape(self.title)
        lead = f'<p class="lead">{html.escape(self.lead)}</p>' if self.lead else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{style()}</style></head>\n"
            f'<body class="report"><main><h1>{title}</h1>{lead}\n'
            + "\n".join(self._parts)
            + "\n</main></body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; a file that is there is replaced as a whole."""
        with atomic.replacing(path) as file:
            file.write(self.html().encode())
