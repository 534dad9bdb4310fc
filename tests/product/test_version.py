"""The version that programs see, and how it compares."""

from __future__ import annotations

import importlib.metadata
import itertools
import operator

import pytest

import weft
from weft.torch_version import TorchVersion

VERSIONS = [
    "2.13.0", "2.13", "2", "2.13.0+weft.0.1.0", "2.13.0+cpu", "2.13.0+cu118", "1.13.1", "2.2.0",
    "2.0.0a0", "2.0.0a0+git1a2b", "2.0.0.dev20230101", "2.0.0rc1", "2.0.0.post2", "v2.0.0-1",
    "2.0.0b3.dev2", "2.0.0b3", "2.13.0+2", "2.13.0+10", "2.13.0+weft.0", "1!0.1", "parrot", "",
    "2.0.0alpha", "2.0.0-preview_3", "2.0.0.post", "2.0.0.post.dev", " 2.0.0 ", "2.0.0+A_b-1",
]  # fmt: skip
OTHERS = [(2, 13), (2, 13, 0), (2, 13, 1), (1,), [3], (2, "13", "0a0")]
COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt]


def test_the_version_is_that_of_the_pytorch_it_follows() -> None:
    assert isinstance(weft.__version__, str)
    assert weft.__version__ >= "2.0" and weft.__version__ > (2, 2) and weft.__version__ < "2.14"
    assert weft.__version__.split("+")[0].split(".") == ["2", "13", "0"]
    assert weft.__version__ == f"2.13.0+weft.{weft.version.weft}"
    assert importlib.metadata.version("weft") == weft.version.weft
    assert {weft.__version__: 1}[str(weft.__version__)] == 1


def result(compare, a, b):  # type: ignore[no-untyped-def]
    try:
        return compare(a, b)
    except TypeError:
        return "TypeError"


def test_comparisons_are_those_of_pytorch() -> None:
    theirs = pytest.importorskip("torch").torch_version.TorchVersion
    for a, b in itertools.product(VERSIONS, [*VERSIONS, *OTHERS]):
        for compare in COMPARISONS:
            wanted = result(compare, theirs(a), b)
            assert result(compare, TorchVersion(a), b) == wanted, (compare, a, b)


def test_a_version_of_packaging_compares() -> None:
    packaging = pytest.importorskip("packaging.version")
    assert packaging.Version("2.0") < weft.__version__ < packaging.Version("3")
    assert packaging.parse(weft.__version__) >= packaging.parse("2.13.0")
    assert packaging.Version("2.13") <= weft.__version__
