"""The pages on text and sound run, so do short forms of their examples, and torchtext's names."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ["text_classification", "translation", "ctc_speech", "multimodal"]


def run(*arguments: str, cwd: pathlib.Path | None = None) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", ["text", "audio"])
def test_the_pages_on_text_and_sound_run(
    page: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "docs" / f"{page}.md"
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(path), "exec"), scope)


def options(name: str) -> list[str]:
    if name == "multimodal" and importlib.util.find_spec("sklearn") is None:
        pytest.skip("the digits are scikit-learn's, the extra 'demo'")
    return ["--made"] if name == "translation" else []


@pytest.mark.parametrize("name", EXAMPLES)
def test_short_forms_of_the_examples_on_text_and_sound(name: str, tmp_path: pathlib.Path) -> None:
    path = str(ROOT / "examples" / f"{name}.py")
    more = ["--save", str(tmp_path)] if name == "ctc_speech" else []
    out = run(path, "--steps", "3", *options(name), *more)
    losses = [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)", out, re.M)]
    assert len(losses) == 3 and all(0 < loss < 100 for loss in losses)
    assert re.search(r"^result: \d.* \(goal .*\)$", out, re.M), "what it has reached"
    if more:
        from weft import audio

        found = list(tmp_path.glob("*.wav"))
        assert found and all(audio.load(path)[1] == 8000 for path in found)


@pytest.mark.deep
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_on_text_and_sound_reach_their_results(name: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options(name)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=1500)


def test_translation_reads_files(tmp_path: pathlib.Path) -> None:
    for name in ("train", "test_2016_flickr"):
        (tmp_path / f"{name}.de").write_text("ein hund läuft .\n" * 80, encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("a dog runs .\n" * 80, encoding="utf-8")
    path = str(ROOT / "examples" / "translation.py")
    out = run(path, "--data", str(tmp_path), "--steps", "12", "--beams", "2")
    assert re.search(r"^result: \d\.\d+ BLEU", out, re.M)
    nothing = [sys.executable, path, "--data", str(tmp_path / "nothing")]
    failed = subprocess.run(nothing, capture_output=True, text=True)
    assert failed.returncode == 1 and "--made needs no files" in failed.stderr


SCRIPT = """
import io, torch
import torchtext, torchaudio
from torchtext.legacy import data, datasets
from torchtext.data import Field, BucketIterator
import torchtext.data.metrics
from torchtext.data.utils import get_tokenizer
from torchtext.vocab import build_vocab_from_iterator, GloVe
import torchtext.transforms as T
import torchaudio.transforms
from torchaudio.functional import resample

TEXT = data.Field(tokenize="basic_english", include_lengths=True)
assert data.Field is Field and torchtext.data is __import__("weft.text.data").text.data
TEXT.build_vocab([["a", "b"]])
words, lengths = TEXT.process([["b"], ["a", "c"]])
assert isinstance(words, torch.Tensor) and words.tolist() == [[3, 2], [1, 0]]
vocab = build_vocab_from_iterator([get_tokenizer("basic_english")("It works.")])
print(T.Sequential(T.VocabTransform(vocab), T.ToTensor())(["works", "."]).tolist())
wave = torch.sin(torch.arange(1600) * 0.1)[None]
file = io.BytesIO()
torchaudio.save(file, wave, 16000, format="wav")
file.seek(0)
back, rate = torchaudio.load(file)
mfcc = torchaudio.transforms.MFCC(rate, 13, melkwargs={"n_fft": 256, "n_mels": 20})(back)
print(torchaudio.__version__, list(mfcc.shape), len(resample(back[0], 2, 1)))
"""


def test_programs_find_the_packages_under_their_own_names(tmp_path: pathlib.Path) -> None:
    for package in ("torchtext", "torchaudio"):
        if importlib.util.find_spec(package) is not None:
            pytest.skip(f"{package} itself is installed, and comes first")
    (tmp_path / "script.py").write_text(SCRIPT)
    out = run("-m", "weft", "run", "script.py", cwd=tmp_path)
    assert out.splitlines() == ["[2, 0]", "2.11.0 [1, 13, 13] 800"]
    (tmp_path / "wrong.py").write_text("import torchtext, torchaudio\ntorchtext.zzz()\n")
    command = [sys.executable, "-m", "weft", "run", "wrong.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "wrong.py:2: torchtext.zzz" in done.stderr
