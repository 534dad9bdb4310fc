"""The documentation site: its pages are made, need no network, and are searched from the folder."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
sys.path.insert(0, str(ROOT / "tools"))
import site_api  # noqa: E402
import site_tables  # noqa: E402

built = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="run `make docs` first")


def test_the_reference_has_every_function_with_its_examples() -> None:
    pages = site_api.pages()
    assert "#### `relu` { #relu }" in pages["torch"] and "#### `Linear`" in pages["nn"]
    assert "```pycon\n>>> torch.relu(" in pages["torch"]
    assert "#### `Trainer.fit`" in pages["train"] and "#### `backward`" in pages["tensor"]
    for page, text in pages.items():
        assert text.count("```") % 2 == 0, page
        assert len(site_api.entries(page)) >= 2, page


def test_the_tables_are_made_from_the_code() -> None:
    table = site_tables.table("coverage")
    share = re.search(r"\*\*all\*\* \| (\d+) \| (\d+) \| ([\d.]+)% \|", table)
    assert share and int(share[1]) < int(share[2]) and 90 < float(share[3]) < 100
    missing = site_tables.table("missing")
    assert "`sparse_csr_tensor`" in missing and "`relu`" not in missing
    assert site_tables.table("differences").startswith("* ")


def test_the_navigation_has_every_page() -> None:
    named = set(re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert pages <= named


@built
def test_the_built_pages_ask_for_nothing_on_the_network() -> None:
    for path in SITE.rglob("*.html"):
        text = path.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?([^\"\s>]+)", text)
        loaded += re.findall(r"<link[^>]* href=\"?([^\"\s>]+)", text)
        outside = [url for url in loaded if re.match(r"(https?:)?//", url)]
        assert not outside, (path.name, outside)


@built
@pytest.mark.skipif(browser.find() is None, reason="needs Chromium")
def test_the_built_site_is_searched_from_its_folder() -> None:
    with browser.running() as chromium:
        page = chromium.page((SITE / "tutorial.html").as_uri())
        page.run("document.querySelector('.md-search__input').focus()")
        page.wait("document.querySelector('iframe') !== null")
        page.run(
            "(() => { const box = document.querySelector('.md-search__input');"
            "box.value = 'cross_entropy'; box.dispatchEvent(new Event('input'));"
            "box.dispatchEvent(new Event('keyup')); })()"
        )
        page.wait("document.querySelectorAll('.md-search-result__item').length > 0")
        assert page.complaints() == []
        assert all(url.startswith(("file:", "data:", "about:")) for url in page.requests())
