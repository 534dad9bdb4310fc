"""Data sets from files of the original formats, downloads, files of images, and drawing."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.vision import datasets, io, transforms, utils
from weft.vision.datasets import mnist as idx
from weft.vision.datasets._pickles import read_pickle
from weft.vision.datasets.utils import (
    check_integrity,
    download_url,
    extract_archive,
)

pytest.importorskip("PIL", reason="Pillow is the extra 'vision'")


# --- MNIST -----------------------------------------------------------------------------------


def idx_bytes(array: np.ndarray) -> bytes:
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    head = struct.pack(">HBB", 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_idx(folder: pathlib.Path, count: int, prefix: str = "train", packed: bool = False) -> Any:
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        data, end = (gzip.compress(idx_bytes(array)), ".gz") if packed else (idx_bytes(array), "")
        (folder / f"{prefix}-{name}{end}").write_bytes(data)
    return images, labels


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [datasets.MNIST, datasets.FashionMNIST, datasets.KMNIST])
def test_mnist_and_its_like_are_read(tmp_path: pathlib.Path, kind: Any, packed: bool) -> None:
    images, labels = write_idx(tmp_path / kind.__name__ / "raw", 12, packed=packed)
    data = kind(str(tmp_path), transform=transforms.ToTensor())
    assert len(data) == 12 and np.array_equal(data.data.numpy(), images)
    x, y = data[7]
    assert y == 7 and x.shape == (1, 28, 28)
    assert np.allclose(x.numpy()[0], images[7] / 255)
    assert len(data.classes) == 10 and data.class_to_idx[data.classes[3]] == 3
    assert "Split: Train" in repr(data) and data.targets.tolist() == labels.tolist()
    with pytest.raises(RuntimeError, match="download=True"):
        kind(str(tmp_path), train=False)
    batch = next(iter(weft.utils.data.DataLoader(data, batch_size=5)))
    assert batch[0].shape == (5, 1, 28, 28) and batch[1].tolist() == [0, 1, 2, 3, 4]


def test_emnist_and_qmnist(tmp_path: pathlib.Path) -> None:
    write_idx(tmp_path / "EMNIST" / "raw", 5, "emnist-letters-test")
    data = datasets.EMNIST(tmp_path, split="letters", train=False)
    assert len(data) == 5 and data.classes[1] == "a"
    with pytest.raises(ValueError, match="Valid values are"):
        datasets.EMNIST(tmp_path, split="nothing")
    folder = tmp_path / "QMNIST" / "raw"
    folder.mkdir(parents=True)
    rows = np.arange(6 * 8).reshape(6, 8).astype(np.int32)
    (folder / "qmnist-test-labels-idx2-int").write_bytes(idx_bytes(rows))
    images = np.zeros((6, 28, 28), np.uint8)
    (folder / "qmnist-test-images-idx3-ubyte").write_bytes(idx_bytes(images))
    assert datasets.QMNIST(tmp_path, "test")[2][1] == 16
    full = datasets.QMNIST(tmp_path, train=False, compat=False)[1][1]
    assert full.tolist() == rows[1].tolist()


def test_damaged_files_say_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    good = idx_bytes(np.zeros((3, 4, 5), np.uint8))
    claims = struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 2**31)
    for data, text in (
        (good[:-1], "truncated or corrupt"),
        (b"", "not an IDX file"),
        (b"\x00\x00\x08\x09" + b"\0" * 40, "not an IDX file"),
        (claims + b"\0" * 100, "truncated or corrupt"),
        (good + b"x", "truncated or corrupt"),
    ):
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=text):
            idx.read_sn3_pascalvincent_tensor(path)
    path.write_bytes(good)
    with pytest.raises(RuntimeError, match="holds no labels"):
        idx.read_label_file(str(path))


# --- CIFAR, SVHN -----------------------------------------------------------------------------


def write_cifar(folder: pathlib.Path, protocol: int = 2) -> np.ndarray:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (10, 3072)).astype(np.uint8)
    for i in range(5):
        part = {"data": rows[2 * i : 2 * i + 2], "labels": [i, i + 1], "filenames": ["a", "b"]}
        (folder / f"data_batch_{i + 1}").write_bytes(pickle.dumps(part, protocol))
    test = {b"data": rows[:3], b"labels": [1, 2, 3]}
    (folder / "test_batch").write_bytes(pickle.dumps(test, protocol))
    names = {"label_names": [f"class {i}" for i in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol))
    return rows


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_cifar_is_read_from_its_pickles(tmp_path: pathlib.Path, protocol: int) -> None:
    rows = write_cifar(tmp_path / "cifar-10-batches-py", protocol)
    data = datasets.CIFAR10(tmp_path)
    assert len(data) == 10 and data.targets == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    image, label = data[3]
    assert label == 2 and image.size == (32, 32)
    assert np.array_equal(np.asarray(image), rows[3].reshape(3, 32, 32).transpose(1, 2, 0))
    assert len(datasets.CIFAR10(tmp_path, train=False)) == 3
    assert data.classes[4] == "class 4"
    with pytest.raises(RuntimeError, match="CIFAR100: dataset not found"):
        datasets.CIFAR100(tmp_path)


def test_cifar_100_has_fine_labels(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    part = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [7, 99], "coarse_labels": [1, 2]}
    (folder / "train").write_bytes(pickle.dumps(part))
    names = {"fine_label_names": [str(i) for i in range(100)]}
    (folder / "meta").write_bytes(pickle.dumps(names))
    assert datasets.CIFAR100(tmp_path).targets == [7, 99]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


class Other:
    def __reduce__(self) -> Any:
        return np.load, ("/etc/passwd",)


@pytest.mark.parametrize("thing", [Evil(), Other(), {"data": Evil()}, [1, 2], Ellipsis, print])
def test_pickles_run_nothing(
    tmp_path: pathlib.Path, thing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(6):
        path = tmp_path / "file"
        path.write_bytes(pickle.dumps(thing, protocol))
        with pytest.raises(pickle.UnpicklingError, match="file"):
            read_pickle(path)
    assert not (tmp_path / "ran").exists()


def test_damaged_pickles_are_errors_of_their_own(tmp_path: pathlib.Path) -> None:
    whole = pickle.dumps({"data": np.arange(6, dtype=np.uint8), "labels": [1, 2]}, 2)
    path, rng = tmp_path / "file", np.random.default_rng(0)
    for i in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 1 + i % 4):
            data[at] = rng.integers(256)
        path.write_bytes(bytes(data[: len(data) - i % 7]))
        with contextlib.suppress(pickle.UnpicklingError):
            assert isinstance(read_pickle(path), dict)
    path.write_bytes(whole)
    assert read_pickle(path)["data"].tolist() == [0, 1, 2, 3, 4, 5]


def test_svhn_is_read_from_matlab_files(tmp_path: pathlib.Path) -> None:
    from scipy.io import savemat

    x = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4)).astype(np.uint8)
    savemat(tmp_path / "test_32x32.mat", {"X": x, "y": np.array([[10], [1], [9], [10]])})
    data = datasets.SVHN(tmp_path, "test")
    assert data.labels.tolist() == [0, 1, 9, 0] and data.data.shape == (4, 3, 32, 32)
    assert np.array_equal(np.asarray(data[2][0]), x[..., 2])
    with pytest.raises(RuntimeError, match=r"train_32x32\.mat"):
        datasets.SVHN(tmp_path)


# --- folders ---------------------------------------------------------------------------------


def test_folders_of_images(tmp_path: pathlib.Path) -> None:
    from PIL import Image

    for name, colour in (("cat/1.png", 10), ("cat/deep/2.JPG", 20), ("dog/3.bmp", 30)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 3), colour).save(path)
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    data = datasets.ImageFolder(tmp_path, transform=transforms.PILToTensor())
    assert (
        data.classes == ["cat", "dog"] and data.targets == [0, 0, 1] and data.imgs is data.samples
    )
    assert data[2][0].shape == (3, 3, 4) and data[2][0][0, 0, 0] == 30
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="classes empty"):
        datasets.ImageFolder(tmp_path)
    assert len(datasets.ImageFolder(tmp_path, allow_empty=True)) == 3
    texts = datasets.DatasetFolder(
        tmp_path, lambda p: pathlib.Path(p).read_text(), (".txt",), allow_empty=True
    )
    assert texts[0] == ("no image", 1)
    with pytest.raises(FileNotFoundError, match="any class folder"):
        datasets.ImageFolder(tmp_path / "empty")


def test_fake_data_is_the_same_each_time_and_leaves_the_stream_alone() -> None:
    data = datasets.FakeData(5, (3, 6, 7), 4, transforms.ToTensor())
    weft.manual_seed(9)
    before = weft.get_rng_state()
    first, label = data[2]
    assert weft.equal(before, weft.get_rng_state())
    assert weft.equal(first, data[2][0]) and 0 <= label < 4 and first.shape == (3, 6, 7)
    assert len(list(data)) == 5


# --- downloads -------------------------------------------------------------------------------


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves bytes, in ranges if asked; a path with "broken" ends in the middle."""

    files: dict[str, bytes] = {}
    asked: list[tuple[str, str | None]] = []

    def do_GET(self) -> None:
        data, span = self.files.get(self.path), self.headers.get("Range")
        self.asked.append((self.path, span))
        if data is None:
            self.send_error(404)
            return
        start = int(span[6:-1]) if span and "plain" not in self.path else 0
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        part = data[start:]
        broken = "broken" in self.path and not start
        self.wfile.write(part[: len(part) // 2] if broken else part)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.files, Server.asked = {}, []
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_stopped_download_goes_on(tmp_path: pathlib.Path, server: str) -> None:
    data = os.urandom(300_000)
    md5 = hashlib.md5(data).hexdigest()
    Server.files = {"/broken.bin": data, "/plain.bin": data}
    with pytest.raises(ConnectionError, match="150000 of 300000 bytes"):
        download_url(f"{server}/broken.bin", tmp_path, md5=md5)
    assert os.listdir(tmp_path) == ["broken.bin.partial"]
    download_url(f"{server}/broken.bin", tmp_path, md5=md5)
    assert check_integrity(tmp_path / "broken.bin", md5)
    assert Server.asked[-1][1] == "bytes=150000-"
    count = len(Server.asked)
    download_url(f"{server}/broken.bin", tmp_path, md5=md5)
    assert len(Server.asked) == count  # what is there is not fetched again
    # A server that knows no ranges, and what is left of another file.
    (tmp_path / "plain.bin.partial").write_bytes(b"something else")
    download_url(f"{server}/plain.bin", tmp_path, md5=md5)
    assert check_integrity(tmp_path / "plain.bin", md5)


def test_a_wrong_file_is_not_kept(tmp_path: pathlib.Path, server: str) -> None:
    Server.files = {"/file": b"abc"}
    with pytest.raises(RuntimeError, match="its MD5 is 900150983cd24fb0d6963f7d28e17f72"):
        download_url(f"{server}/file", tmp_path, md5="0" * 32)
    assert os.listdir(tmp_path) == []


def test_mnist_downloads_when_asked(
    tmp_path: pathlib.Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    write_idx(made, 4, "train", packed=True)
    write_idx(made, 3, "t10k", packed=True)
    Server.files = {f"/{path.name}": path.read_bytes() for path in made.iterdir()}
    resources = [(name[1:], hashlib.md5(data).hexdigest()) for name, data in Server.files.items()]
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"{server}/nothing/", f"{server}/"])
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    assert len(datasets.MNIST(tmp_path, download=True)) == 4
    assert len(datasets.MNIST(tmp_path, train=False)) == 3
    count = len(Server.asked)
    datasets.MNIST(tmp_path, download=True)
    assert len(Server.asked) == count


def test_archives_stay_in_their_folder(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "evil.tar.gz"
    (tmp_path / "inner").write_text("x")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "inner", arcname="../outside")
    with pytest.raises(tarfile.TarError):
        extract_archive(path, tmp_path / "here")
    assert not (tmp_path / "outside").exists()
    with pytest.raises(RuntimeError, match="not an archive"):
        extract_archive(tmp_path / "inner")


# --- files of images, grids, drawing ---------------------------------------------------------


def test_images_go_to_files_and_come_back(tmp_path: pathlib.Path) -> None:
    x = (weft.rand(3, 9, 12) * 255).to(weft.uint8)
    io.write_png(x, str(tmp_path / "x.png"))
    assert weft.equal(io.read_image(str(tmp_path / "x.png")), x)
    gray = io.read_image(tmp_path / "x.png", io.ImageReadMode.GRAY)
    assert gray.shape == (1, 9, 12)
    assert io.decode_image(io.encode_png(x), "RGB_ALPHA").shape == (4, 9, 12)
    smooth = weft.full((3, 16, 16), 99, dtype=weft.uint8)
    back = io.decode_jpeg(io.encode_jpeg(smooth, quality=95))
    assert (back.int() - 99).abs().max() <= 2
    with pytest.raises(RuntimeError, match="takes bytes"):
        io.encode_png(x.float())


def test_a_grid_of_images() -> None:
    x = weft.arange(5.0).reshape(5, 1, 1, 1).expand(5, 1, 2, 2)
    grid = utils.make_grid(x, nrow=3, padding=1, pad_value=9)
    assert grid.shape == (3, 7, 10)
    assert grid[0, 1].tolist() == [9.0, 0, 0, 9, 1, 1, 9, 2, 2, 9]
    assert grid[2, 4].tolist() == [9.0, 3, 3, 9, 4, 4, 9, 9, 9, 9]
    assert utils.make_grid(weft.zeros(4, 4)).shape == (3, 4, 4)
    scaled = utils.make_grid(x, normalize=True, value_range=(1.0, 3.0), padding=0)
    assert scaled.max() == 1 and scaled.min() == 0
    with pytest.raises(TypeError, match="expected"):
        utils.make_grid("x")


def test_an_image_is_saved_whole_or_not_at_all(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.png"
    utils.save_image(weft.tensor([[[0.0, 0.5], [1.0, 2.0]]]), path)
    assert io.read_image(path)[0].tolist() == [[0, 128], [255, 255]]
    before = path.read_bytes()
    with pytest.raises(ValueError, match="unknown file extension"):
        utils.save_image(weft.zeros(1, 2, 2), tmp_path / "x.nothing")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.png"]


def test_flow_to_image_gives_the_bytes_of_torchvision() -> None:
    """Floats are cut to bytes at the end, so the order of roundings shows."""
    x = [[1.25, 1.25, -1.25, -1.0, -1.25], [0.25, -0.75, -1.75, -0.25, -1.25]]
    y = [[1.75, 1.75, -1.75, 1.0, -1.75], [-1.75, -0.5, 0.5, -1.75, 0.25]]
    expected = [
        [[255, 255, 0, 108, 0], [137, 148, 39, 97, 103]],
        [[138, 138, 19, 255, 19], [45, 186, 255, 45, 250]],
        [[0, 0, 255, 87, 255], [255, 255, 233, 255, 255]],
    ]
    flow = weft.tensor([x, y])
    assert utils.flow_to_image(flow).tolist() == expected
    assert utils.flow_to_image(flow[None]).tolist() == [expected]


def test_drawing() -> None:
    x = weft.zeros(3, 20, 30, dtype=weft.uint8)
    drawn = utils.draw_bounding_boxes(x, weft.tensor([[5.0, 4, 15, 12]]), ["a"], colors="red")
    assert drawn[:, 4, 5].tolist() == [255, 0, 0] and drawn[0, 12, 15] == 255
    assert x.sum() == 0 and drawn[:, 3, 4].sum() == 0
    mask = weft.zeros(2, 20, 30, dtype=weft.bool)
    mask[0, :5], mask[1, 3:8] = True, True
    masked = utils.draw_segmentation_masks(x, mask, alpha=0.5, colors=["blue", (0, 200, 0)])
    assert masked[:, 0, 0].tolist() == [0, 0, 127] and masked[:, 7, 0].tolist() == [0, 100, 0]
    assert masked[:, 4, 0].tolist() == [0, 0, 0]  # both
    points = utils.draw_keypoints(x.float(), weft.tensor([[[3, 3], [10, 10]]]), [(0, 1)], "white")
    assert points.is_floating_point() and points[0, 3, 3] == 1.0
    with pytest.raises(ValueError, match="xmin, ymin"):
        utils.draw_bounding_boxes(x, weft.tensor([[9.0, 0, 1, 1]]))
    with pytest.raises(ValueError, match="dtype bool"):
        utils.draw_segmentation_masks(x, mask.int())


# --- torchvision -----------------------------------------------------------------------------

PROGRAM = """
import torch, torchvision
import torchvision.transforms as T
from torchvision import datasets, models
from torchvision.transforms import v2
from torchvision.models.resnet import ResNet, resnet18
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.ops import nms
import torchvision.models.googlenet
assert callable(models.googlenet) and callable(torchvision.models.alexnet)
assert T.ToTensor is torchvision.transforms.ToTensor and torchvision.io.read_image
assert torchvision.utils.make_grid(torch.zeros(2, 3, 4, 4)).shape == (3, 8, 14)
assert isinstance(models.get_model("squeezenet1_1"), torch.nn.Module)
print(nms(torch.tensor([[0., 0, 1, 1]]), torch.ones(1), .5).tolist(), torchvision.__version__)
"""


def _run(folder: pathlib.Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    command = [sys.executable, "-m", "weft", "run", "script.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_programs_find_torchvision(tmp_path: pathlib.Path) -> None:
    done = _run(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0] 0.28.0\n"
    done = _run(tmp_path, "from torchvision.datasets import Nothing\n")
    assert done.returncode == 2 and "torchvision.datasets.Nothing" in done.stderr


def test_an_installed_torchvision_comes_first(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("mark = 'installed'\n")
    done = _run(tmp_path, "import torch, torchvision\nprint(torchvision.mark)\n")
    assert done.stdout == "installed\n", done.stderr
