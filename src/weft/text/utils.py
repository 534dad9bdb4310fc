"""Helpers that old programs import from ``torchtext.utils``."""

from __future__ import annotations

import csv
import hashlib
import os
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

from weft.hub import download_url_to_file

__all__ = ["download_from_url", "extract_archive", "unicode_csv_reader"]


def unicode_csv_reader(unicode_csv_data: Iterable[str], **kwargs: Any) -> Iterator[list[str]]:
    """The rows of CSV text."""
    return csv.reader(unicode_csv_data, **kwargs)


def extract_archive(
    from_path: str, to_path: str | None = None, overwrite: bool = False
) -> list[str]:
    """Unpack an archive into a folder, by default its own; the paths of what is in it.

    Nothing is written outside the folder.
    """
    # Importing the package of images takes a while, and few programs unpack archives.
    from weft.vision.datasets import utils

    folder = os.path.dirname(os.path.abspath(from_path)) if to_path is None else to_path
    made = utils.extract_archive(from_path, folder)
    if os.path.isfile(made):  # a single file, gzipped
        return [made]
    return [name for name in _names(from_path, folder) if os.path.exists(name)]


def _names(archive: str, folder: str) -> list[str]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            found = packed.namelist()
    else:
        with tarfile.open(archive) as packed_tar:
            found = packed_tar.getnames()
    return [os.path.join(folder, name) for name in found]


def download_from_url(
    url: str,
    path: str | None = None,
    root: str = ".data",
    overwrite: bool = False,
    hash_value: str | None = None,
    hash_type: str = "sha256",
) -> str:
    """Download a file, since a program asks for it by this call; the path of the file.

    A file that is there is kept unless ``overwrite``. It stands under its name once it is whole.
    """
    target = os.path.join(root, os.path.basename(url)) if path is None else path
    if overwrite or not os.path.isfile(target):
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        download_url_to_file(url, target, progress=False)
    if hash_value is not None:
        with open(target, "rb") as file:
            found = hashlib.file_digest(file, hash_type).hexdigest()
        if found != hash_value:
            raise RuntimeError(f"{target!r} has the {hash_type} {found}, not {hash_value}")
    return target
