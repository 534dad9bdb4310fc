"""Charts, heat maps, image grids and pages: well-formed, escaped, honest about odd values."""

from __future__ import annotations

import io
import math
import pathlib
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest

import weft
from weft import viz
from weft.viz import svg

EVIL = "</svg><script>alert(1)</script>&\"'"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def of_class(tree: ET.Element, name: str) -> list[ET.Element]:
    return [e for e in tree.iter() if name in e.get("class", "").split()]


def places(path: str) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in re.findall(r"([\d.]+) ([\d.]+)", path)]


def test_a_chart_has_its_lines_in_their_places() -> None:
    tree = parsed(viz.line_chart({"a": [0, 1, 2], "b": [2.0, 1.0, 0.0]}, y_range=(0, 2)))
    first, second = (e.get("d") for e in of_class(tree, "line") if e.get("d"))
    up, down = places(first or ""), places(second or "")
    assert [x for x, _ in up] == sorted({x for x, _ in up})
    assert up[0][1] == down[2][1] > up[1][1] == down[1][1] > up[2][1] == down[0][1]
    assert len(of_class(tree, "dot")) == 6
    assert "a: 2 at 2" in "".join(tree.itertext())


def test_values_that_are_not_finite_leave_gaps() -> None:
    tree = parsed(viz.line_chart({"a": [1, math.nan, 2, math.inf, 3, 4]}))
    (line,) = (e.get("d") for e in of_class(tree, "line") if e.get("d"))
    assert line and line.count("M") == 3 and len(of_class(tree, "dot")) == 4
    log = parsed(viz.line_chart({"a": [1.0, 0.0, -1.0, 10.0]}, log_y=True))
    assert len(of_class(log, "dot")) == 2


@pytest.mark.parametrize(
    "series",
    [{}, {"a": []}, {"a": [1]}, {"a": [math.nan]}, {"a": [5, 5, 5]}, {"a": [0, 0]},
     {"a": [1e-30, 1e30]}, {"a": [-1e300, 1e300]}, {"a": ([3, 3], [1, 2])}],
)  # fmt: skip
@pytest.mark.parametrize("log", [False, True])
def test_odd_series_are_drawn(series: dict[str, object], log: bool) -> None:
    tree = parsed(viz.line_chart(series, log_y=log, marks={0: "here", 99: "nowhere"}))
    assert tree.tag.endswith("svg") and "nan" not in ET.tostring(tree, "unicode").lower()


def test_words_are_escaped_everywhere() -> None:
    made = [
        viz.line_chart({EVIL: [1, 2]}, title=EVIL, x_label=EVIL, y_label=EVIL, marks={0: EVIL}),
        viz.heat_map([[1.0]], rows=[EVIL], columns=[EVIL], title=EVIL, row_label=EVIL),
        viz.confusion_matrix([[1]], labels=[EVIL], title=EVIL),
        viz.image_grid([np.zeros((2, 2))], captions=[EVIL], title=EVIL),
    ]
    report = viz.Report(EVIL, EVIL)
    report.section(EVIL, EVIL)
    report.text(EVIL)
    report.facts({EVIL: EVIL})
    report.output(EVIL)
    report.link(EVIL, EVIL, EVIL)
    for text in (*made, report.html()):
        assert "<script" not in text
    for text in made:
        parsed(text)


def test_a_chart_with_wrong_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' has 2 values for 3 places"):
        viz.line_chart({"a": [1, 2]}, x=[1, 2, 3])
    with pytest.raises(ValueError, match="1 captions for 2 images"):
        viz.image_grid([[[0.0]], [[0.0]]], captions=["x"])
    with pytest.raises(ValueError, match="square matrix"):
        viz.confusion_matrix([[1, 2]])


def test_ticks_are_round_and_inside() -> None:
    assert svg.ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert svg.ticks(0.13, 0.19, 3) == pytest.approx([0.14, 0.16, 0.18])
    assert svg.ticks(3, 3) == [3]
    assert svg.powers(0.02, 300) == pytest.approx([0.1, 1, 10, 100])
    assert svg.powers(0.9, 3) == pytest.approx([1, 2])


def test_errors_of_a_confusion_matrix_are_seen() -> None:
    tree = parsed(viz.confusion_matrix(weft.tensor([[100, 1], [0, 50]])))
    (error,) = of_class(tree, "wrong")
    assert float(error.get("fill-opacity", 0)) == 1  # it is the largest of its kind
    hits = [float(e.get("fill-opacity", 0)) for e in of_class(tree, "heat")]
    assert hits == [1, 0.5]
    whole = "".join(tree.itertext())
    assert "100" in whole and "50" in whole


def test_a_heat_map_takes_values_of_any_kind() -> None:
    tree = parsed(viz.heat_map(weft.tensor([[1.0, float("nan")], [-2.0, float("inf")]])))
    shares = [float(e.get("fill-opacity", 0)) for e in of_class(tree, "heat")]
    assert all(0 <= s <= 1 for s in shares)


def read_png(data: bytes) -> np.ndarray:
    """The pixels of a PNG without filters, as ours are."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    stream, body, shape = io.BytesIO(data[8:]), b"", (0, 0, 0)
    while head := stream.read(8):
        size, name = struct.unpack(">I4s", head)
        chunk = stream.read(size)
        assert struct.unpack(">I", stream.read(4))[0] == zlib.crc32(name + chunk)
        if name == b"IHDR":
            width, height, depth, kind = struct.unpack(">IIBB", chunk[:10])
            shape = (height, width, {0: 1, 4: 2, 2: 3, 6: 4}[kind])
            assert depth == 8
        elif name == b"IDAT":
            body += chunk
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(shape[0], -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(shape)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_png_holds_the_pixels(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, channels)).astype(np.uint8)
    assert (read_png(viz.png(pixels)) == pixels).all()
    assert (read_png(viz.png(weft.from_numpy(pixels / np.float32(255)))) == pixels).all()


def test_a_png_of_odd_values() -> None:
    image = [[float("nan"), -1.0, 2.0, float("inf")]]
    assert read_png(viz.png(image)).reshape(-1).tolist() == [0, 0, 255, 255]
    for wrong in (np.zeros(3), np.zeros((0, 2)), np.zeros((2, 2, 5))):
        with pytest.raises(ValueError, match="an image is"):
            viz.png(wrong)


def test_a_picture_can_stand_alone() -> None:
    tree = parsed(viz.standalone(viz.line_chart({"a": [1, 2]})))
    assert "prefers-color-scheme: dark" in "".join(tree.itertext())


def test_a_report_is_replaced_as_a_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.html"
    report = viz.Report("One")
    report.save(path)
    report.section("Two", "words")
    report.save(path)
    text = path.read_text(encoding="utf-8")
    assert "<h2>Two</h2><p>" in text.replace("\n", "")
    assert "default-src 'none'" in text and "http://" not in text.replace("http://www.w3.org", "")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_words_on_cells_contrast_with_them() -> None:
    """By the formula of WCAG; 4 is between its levels for large words and for small ones."""
    from weft.viz import grids

    css = (pathlib.Path(grids.__file__).with_name("style.css")).read_text()
    light, dark = css.split("@media (prefers-color-scheme: dark)")[:2]

    def colour(part: str, name: str) -> np.ndarray:
        found = re.search(rf"--{name}: #(\w{{6}})", part)
        assert found
        return np.array([int(found[1][i : i + 2], 16) / 255 for i in (0, 2, 4)])

    def luminance(c: np.ndarray) -> float:
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for part in (light, dark):
        for kind in ("heat", "wrong"):
            for share in np.linspace(0.02, 1, 50):
                under = share * colour(part, kind) + (1 - share) * colour(part, "cell")
                word = colour(part, "on-heat" if share >= grids.DARK_FROM else "ink")
                levels = sorted((luminance(under) + 0.05, luminance(word) + 0.05))
                assert levels[1] / levels[0] >= 3.9, (kind, share)
