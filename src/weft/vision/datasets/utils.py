"""Downloads with checksum and resume, and archives unpacked without leaving their folder."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import shutil
import tarfile
import zipfile
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

_CHUNK = 1 << 17


def calculate_md5(fpath: str | os.PathLike[str], chunk_size: int = 1 << 20) -> str:
    """The MD5 of a file."""
    with open(fpath, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(fpath: str | os.PathLike[str], md5: str, **kwargs: Any) -> bool:
    """Whether a file has an MD5."""
    return md5 == calculate_md5(fpath, **kwargs)


def check_integrity(fpath: str | os.PathLike[str], md5: str | None = None) -> bool:
    """Whether a file is there and has the MD5 that it should."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def _fetch(url: str, partial: str) -> None:
    """Append what is missing of a file to what an earlier try left."""
    have = os.path.getsize(partial) if os.path.exists(partial) else 0
    headers = {"User-Agent": "weft.vision"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urlopen(Request(url, headers=headers), timeout=60) as source:
            # A server that ignores the range sends the whole file from its beginning.
            mode = "ab" if have and source.status == 206 else "wb"
            with open(partial, mode) as file:
                start = file.tell()
                shutil.copyfileobj(source, file, _CHUNK)
                came = file.tell() - start
            stated = source.headers.get("Content-Length")
            if stated is not None and came < int(stated):
                raise ConnectionError(
                    f"{url}: the connection ended after {came} of {stated} bytes; another try goes "
                    "on from there"
                )
    except HTTPError as error:
        if error.code != 416:  # nothing is missing
            raise


def download_url(
    url: str,
    root: str | os.PathLike[str],
    filename: str | os.PathLike[str] | None = None,
    md5: str | None = None,
    max_redirect_hops: int = 3,
) -> None:
    """Download a file into a folder; an interrupted download is resumed.

    It stands under its name only once it is whole and its checksum is right.
    """
    root = os.path.expanduser(root)
    target = os.path.join(root, os.fspath(filename or os.path.basename(urlparse(url).path)))
    if check_integrity(target, md5):
        return
    os.makedirs(root, exist_ok=True)
    partial = f"{target}.partial"
    begun = os.path.exists(partial)
    _fetch(url, partial)
    if md5 is not None and not check_md5(partial, md5) and begun:
        os.unlink(partial)  # what was left was of another file
        _fetch(url, partial)
    if md5 is not None and not check_md5(partial, md5):
        found = calculate_md5(partial)
        os.unlink(partial)
        raise RuntimeError(
            f"{url} was downloaded and is not the file that is expected: its MD5 is {found} and "
            f"should be {md5}"
        )
    os.replace(partial, target)


def download_from_mirrors(
    mirrors: list[str], filename: str, root: str | os.PathLike[str], md5: str | None
) -> None:
    """Download a file from the first of some addresses that has it."""
    errors = []
    for mirror in mirrors:
        try:
            return download_url(f"{mirror}{filename}", root, filename, md5)
        except (URLError, OSError, RuntimeError) as error:
            errors.append(f"{mirror}: {error}")
    raise RuntimeError(f"Error downloading {filename}:\n" + "\n".join(errors))


def extract_archive(
    from_path: str | os.PathLike[str],
    to_path: str | os.PathLike[str] | None = None,
    remove_finished: bool = False,
) -> str:
    """Unpack .tar, .tar.gz, .tgz, .zip or a single .gz; names that lead elsewhere are refused."""
    source = os.fspath(from_path)
    target = os.fspath(to_path) if to_path is not None else os.path.dirname(source)
    if re.search(r"\.(tar(\.\w+)?|tgz|tbz2?)$", source):
        with tarfile.open(source) as archive:
            archive.extractall(target, filter="data")
    elif source.endswith(".zip"):
        with zipfile.ZipFile(source) as archive:
            archive.extractall(target)  # zipfile keeps names inside the folder
    elif source.endswith(".gz"):
        target = os.path.join(target, os.path.basename(source)[:-3])
        with gzip.open(source) as packed, open(target, "wb") as file:
            shutil.copyfileobj(packed, file, _CHUNK)
    else:
        raise RuntimeError(f"{source} is not an archive whose kind is known by its ending")
    if remove_finished:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(source)
    return target


def download_and_extract_archive(
    url: str,
    download_root: str | os.PathLike[str],
    extract_root: str | os.PathLike[str] | None = None,
    filename: str | os.PathLike[str] | None = None,
    md5: str | None = None,
    remove_finished: bool = False,
) -> None:
    """Download an archive and unpack it."""
    root = os.path.expanduser(download_root)
    name = os.fspath(filename or os.path.basename(urlparse(url).path))
    download_url(url, root, name, md5)
    extract_archive(os.path.join(root, name), extract_root or root, remove_finished)


def verify_str_arg(value: Any, arg: str, valid_values: Any = None) -> Any:
    """A word that is one of some."""
    if not isinstance(value, str):
        raise ValueError(f"Expected type str for argument {arg}, but got type {type(value)}.")
    if valid_values is not None and value not in valid_values:
        known = ", ".join(f"'{v}'" for v in valid_values)
        raise ValueError(
            f"Unknown value '{value}' for argument {arg}. Valid values are {{{known}}}."
        )
    return value
