"""Tokenisers that need no vocabulary."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

Tokenizer = Callable[[str], list[str]]

# The steps of torchtext's "basic_english", in their order; the text is lowered before.
_BASIC_ENGLISH = [
    ("'", " '  "),
    ('"', ""),
    (".", " . "),
    ("<br />", " "),
    (",", " , "),
    ("(", " ( "),
    (")", " ) "),
    ("!", " ! "),
    ("?", " ? "),
    (";", " "),
    (":", " "),
]


def basic_english(line: str) -> list[str]:
    """Lower, set punctuation apart, drop double quotes, semicolons and colons, and split.

    >>> basic_english("It's 3.5 (or so); \\"fine\\"!")
    ['it', "'", 's', '3', '.', '5', '(', 'or', 'so', ')', 'fine', '!']
    """
    line = line.lower()
    for sign, replacement in _BASIC_ENGLISH:
        line = line.replace(sign, replacement)
    return line.split()


def whitespace(line: str) -> list[str]:
    """The words between white space.

    >>> whitespace("two  words\\n")
    ['two', 'words']
    """
    return line.split()


def characters(line: str) -> list[str]:
    """Every character.

    >>> characters("a b")
    ['a', ' ', 'b']
    """
    return list(line)


def regex_tokenizer(pattern: str = r"\w+|[^\w\s]", lower: bool = False) -> Tokenizer:
    """A tokeniser that finds all matches of a pattern.

    >>> regex_tokenizer()("Don't stop.")
    ['Don', "'", 't', 'stop', '.']
    """
    return functools.partial(_find_all, re.compile(pattern), lower)


def _find_all(pattern: re.Pattern[str], lower: bool, line: str) -> list[str]:
    return [m.group() for m in pattern.finditer(line.lower() if lower else line)]


_OWN: dict[str, Tokenizer] = {
    "basic_english": basic_english,
    "char": characters,
    "regex": regex_tokenizer(),
    "whitespace": whitespace,
}


def _texts(tokenize: Callable[[str], Any], line: str) -> list[str]:
    return [token.text for token in tokenize(line)]


def _library(name: str, package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        own = ", ".join(map(repr, sorted(_OWN)))
        raise ModuleNotFoundError(
            f"the tokeniser {name!r} needs the package {package.partition('.')[0]!r}, which is not "
            f"installed; {own} and any function from a string to a list need none",
            name=error.name,
        ) from None


def _of_library(name: str, language: str) -> Tokenizer | None:
    """A tokeniser of another package, if the name is one of those that torchtext knows."""
    if name == "spacy":
        spacy = _library(name, "spacy")
        return functools.partial(_texts, spacy.load(language).tokenizer)
    if name == "moses":
        return _library(name, "sacremoses").MosesTokenizer().tokenize
    if name == "toktok":
        return _library(name, "nltk.tokenize.toktok").ToktokTokenizer().tokenize
    if name == "revtok":
        return _library(name, "revtok").tokenize
    if name == "subword":
        return functools.partial(_library(name, "revtok").tokenize, decap=True)
    return None


def get_tokenizer(tokenizer: str | Tokenizer | None, language: str = "en") -> Tokenizer:
    """A tokeniser by its name; None splits at white space, a function is returned as it is.

    >>> get_tokenizer("char")("ab")
    ['a', 'b']
    """
    if tokenizer is None:
        return whitespace
    if not isinstance(tokenizer, str):
        if callable(tokenizer):
            return tokenizer
        raise ValueError(f"a tokenizer is a name, a function or None, not {tokenizer!r}")
    if tokenizer == "basic_english" and language != "en":
        raise ValueError(f"'basic_english' is for English ('en') only, not for {language!r}")
    found = _OWN.get(tokenizer) or _of_library(tokenizer, language)
    if found is None:
        known = [*sorted(_OWN), "spacy", "moses", "toktok", "revtok", "subword"]
        raise ValueError(f"unknown tokenizer {tokenizer!r}; known are {known} and any function")
    return found
