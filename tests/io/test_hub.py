"""Models and weights from a folder, from an address, and from what was downloaded before."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft as torch
from weft import hub

CONFIG = '''
dependencies = ["weft"]
import helper_of_this_repository

def tiny(width=2, **more):
    """A small layer."""
    import weft
    return weft.nn.Linear(width, helper_of_this_repository.OUT)

def _private():
    pass
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = hub.get_dir()
    hub.set_dir(tmp_path / "hub")
    made = tmp_path / "repository"
    made.mkdir()
    (made / "hubconf.py").write_text(CONFIG)
    (made / "helper_of_this_repository.py").write_text("OUT = 3")
    yield made
    hub.set_dir(before)
    sys.modules.pop("helper_of_this_repository", None)


def test_a_folder(folder: Path) -> None:
    path = list(sys.path)
    layer = hub.load(str(folder), "tiny", source="local", width=5)
    assert layer.weight.shape == (3, 5)
    assert hub.list(str(folder), source="local") == ["tiny"]
    assert hub.help(str(folder), "tiny", source="local") == "A small layer."
    assert sys.path == path
    with pytest.raises(RuntimeError, match="Cannot find callable huge"):
        hub.load(str(folder), "huge", source="local")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(str(folder), "tiny", source="disk")
    (folder / "hubconf.py").write_text("dependencies = ['no_such_package']\ndef f(): pass")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        hub.load(str(folder), "f", source="local")


def test_a_repository_that_was_downloaded(folder: Path, capsys: pytest.CaptureFixture) -> None:
    place = Path(hub.get_dir()) / "owner_name_main"
    place.parent.mkdir()
    folder.rename(place)
    assert hub.load("owner/name", "tiny").weight.shape == (3, 2)
    assert "Using cache found in" in capsys.readouterr().err
    with pytest.raises(ValueError, match="owner/name"):
        hub.load("only_a_name", "tiny")


def test_a_repository_is_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda text: "n")
    with pytest.raises(Exception, match="Untrusted repository"):
        hub.load("owner/other:branch", "tiny")
    assert not (Path(hub.get_dir()) / "trusted_list").exists()


def test_weights_from_an_address(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(2)}, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    named = tmp_path / f"net-{digest[:8]}.pth"
    named.write_bytes(source.read_bytes())
    found = hub.load_state_dict_from_url(named.as_uri(), progress=False, check_hash=True)
    assert found["w"].tolist() == [1, 1]
    named.unlink()
    again = hub.load_state_dict_from_url(named.as_uri(), check_hash=True)  # not asked for again
    assert again["w"].tolist() == [1, 1]


def test_a_wrong_or_broken_download_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "a-00000000.pth"
    source.write_bytes(b"not what it should be")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(source.as_uri(), check_hash=True)
    with pytest.raises(OSError):
        hub.download_url_to_file((tmp_path / "gone").as_uri(), str(tmp_path / "target"))
    assert list((Path(hub.get_dir()) / "checkpoints").iterdir()) == []
    assert not (tmp_path / "target").exists() and not list(tmp_path.glob("*.partial"))
