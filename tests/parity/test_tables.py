"""PyTorch's tables of modules, optimizers and erroneous inputs: see ``tables``."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the tables come from PyTorch, which is absent")
tables = pytest.importorskip("tables")

from tables_known import KNOWN_FAILURES  # noqa: E402


@pytest.mark.parametrize("name", tables.ENTRIES)
def test_entry_agrees_with_torch(name: str) -> None:
    _, found = tables.failures(name)
    known = KNOWN_FAILURES.get(name, {})
    new = {label: text for label, text in found.items() if label not in known}
    assert not new, "\n".join(f"{label}: {text}" for label, text in new.items())
    mended = [label for label in known if label not in found]
    assert not mended, f"these pass now: take them off the list in tables_known.py: {mended}"


def test_the_list_names_real_entries() -> None:
    assert not set(KNOWN_FAILURES) - set(tables.ENTRIES)


def test_a_missing_error_is_seen() -> None:
    def refuse() -> None:
        raise ValueError("no")

    with pytest.raises(tables.NotRaised):
        tables.check_refusal(lambda: None, refuse, ValueError)
    with pytest.raises(tables.NotRaised):
        tables.check_refusal(lambda: {}["a"], refuse, ValueError)
    tables.check_refusal(refuse, refuse, ValueError)
