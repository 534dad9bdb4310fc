"""Datasets of examples."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from weft import utils
from weft.text.data.example import Example
from weft.text.data.utils import RandomShuffler

# Cells of CSV files may hold whole articles; the module's own limit is 131,072 characters.
csv.field_size_limit(max(csv.field_size_limit(), 1 << 30))


class Dataset(utils.data.Dataset):
    """Examples and their fields; a column is an attribute that iterates over its values."""

    sort_key: Any = None
    name: Any = None
    dirname = ""

    def __init__(
        self,
        examples: Any,
        fields: Any,
        filter_pred: Callable[[Example], bool] | None = None,
    ) -> None:
        if filter_pred is not None:
            kept = filter(filter_pred, examples)
            examples = list(kept) if isinstance(examples, list) else kept
        self.examples = examples
        self.fields: dict[str, Any] = {}
        for name, field in dict(fields).items():
            # Several fields may read one column.
            self.fields.update(
                zip(name, field, strict=True) if isinstance(name, tuple) else [(name, field)]
            )

    @classmethod
    def splits(
        cls,
        path: str | None = None,
        root: str = ".data",
        train: str | None = None,
        validation: str | None = None,
        test: str | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """A dataset for each file or folder that is named, below ``path`` or ``root``/name."""
        folder = cls.download(root) if path is None else path
        names = [name for name in (train, validation, test) if name is not None]
        return tuple(cls(os.path.join(folder, name), **kwargs) for name in names)

    @classmethod
    def download(cls, root: str, check: str | None = None) -> str:
        """The folder of the dataset below ``root``. Nothing is downloaded: it must be there."""
        path = os.path.join(root, cls.name or "", cls.dirname)
        if not os.path.isdir(path if check is None else check):
            raise FileNotFoundError(
                f"{cls.__name__}: there is no folder {path!r}, and weft.text downloads nothing; "
                "put the files there, or name their folder by path="
            )
        return path

    def split(
        self,
        split_ratio: float | Sequence[float] = 0.7,
        stratified: bool = False,
        strata_field: str = "label",
        random_state: Any = None,
    ) -> tuple[Dataset, ...]:
        """Parts of the examples, drawn at random: training and test, or training, validation, test.

        A list of ratios is in the order training, test, validation, as in torchtext.
        """
        ratios = _ratios(split_ratio)
        shuffle = RandomShuffler(random_state)
        groups = [self.examples]
        if stratified:
            if strata_field not in self.fields:
                raise ValueError(f"Invalid field name for strata_field {strata_field}")
            strata: dict[Any, list[Example]] = {}
            for example in self.examples:
                strata.setdefault(getattr(example, strata_field), []).append(example)
            groups = list(strata.values())
        parts: list[list[Example]] = [[], [], []]
        for group in groups:
            for part, more in zip(parts, _divided(group, ratios, shuffle), strict=True):
                part += more
        train, test, validation = parts
        made = tuple(Dataset(part, self.fields) for part in (train, validation, test) if part)
        if self.sort_key:
            for part in made:
                part.sort_key = self.sort_key
        return made

    def __getitem__(self, i: int) -> Any:
        return self.examples[i]

    def __len__(self) -> int:
        try:
            return len(self.examples)
        except TypeError:  # an iterator, whose end is not known
            return 2**32

    def __iter__(self) -> Iterator[Any]:
        return iter(self.examples)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("fields", ()):
            return (getattr(example, name) for example in self.examples)
        raise AttributeError(f"{type(self).__name__} has no attribute or column {name!r}")

    def filter_examples(self, field_names: Sequence[str]) -> None:
        """Take unknown words out of columns."""
        for name in field_names:
            known = self.fields[name].vocab.stoi
            for example in self.examples:
                kept = [token for token in getattr(example, name) if token in known]
                setattr(example, name, kept)


class TabularDataset(Dataset):
    """The lines of a CSV, TSV or JSON-lines file.

    ``fields`` is a list of (name, field) in the order of the columns, or a dict from the columns'
    names (JSON keys) to (name, field).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str,
        fields: Any,
        skip_header: bool = False,
        csv_reader_params: Mapping[str, Any] = {},
        **kwargs: Any,
    ) -> None:
        kind = format.lower()
        if kind not in ("csv", "tsv", "json"):
            raise ValueError(f"format is 'csv', 'tsv' or 'json', not {format!r}")
        with open(os.path.expanduser(path), encoding="utf8", newline="") as file:
            if kind == "json":
                lines: Iterator[Any] = (line for line in file if line.strip())
            else:
                options = {"delimiter": "\t"} if kind == "tsv" else {}
                lines = csv.reader(file, **{**options, **csv_reader_params})
            make: Callable[..., Example] = Example.fromJSON if kind == "json" else Example.fromCSV
            if kind != "json" and isinstance(fields, dict):
                if skip_header:
                    raise ValueError(
                        f"When using a dict to specify fields with a {kind} file, skip_header must "
                        "be False and the file must have a header."
                    )
                header = next(lines)
                missing = [name for name in fields if name not in header]
                if missing:
                    raise ValueError(f"{path!r} has no column {missing[0]!r}; it has {header}")
                make = partial(make, field_to_index={name: header.index(name) for name in fields})
            if skip_header:
                next(lines)
            examples = [make(line, fields) for line in lines]
        if isinstance(fields, dict):
            pairs = [p for p in fields.values() if p is not None]
            fields = [q for p in pairs for q in (p if isinstance(p, list) else [p])]
        super().__init__(examples, fields, **kwargs)


def _ratios(split_ratio: float | Sequence[float]) -> tuple[float, float, float]:
    """Shares of training, test and validation."""
    if isinstance(split_ratio, float):
        if not 0 < split_ratio < 1:
            raise AssertionError(f"Split ratio {split_ratio} not between 0 and 1")
        return split_ratio, 1 - split_ratio, 0.0
    if not isinstance(split_ratio, (list, tuple)):
        raise ValueError(f"Split ratio must be float or a list, got {type(split_ratio)}")
    if len(split_ratio) not in (2, 3):
        raise AssertionError(f"Length of split ratio list should be 2 or 3, got {split_ratio}")
    total = sum(split_ratio)
    train, test, *rest = (ratio if total == 1 else ratio / total for ratio in split_ratio)
    return train, test, rest[0] if rest else 0.0


def _divided(
    examples: Sequence[Example], ratios: tuple[float, float, float], shuffle: RandomShuffler
) -> tuple[list[Example], list[Example], list[Example]]:
    order = [examples[i] for i in shuffle(range(len(examples)))]
    first = round(ratios[0] * len(order))
    second = round(ratios[1] * len(order)) if ratios[2] else len(order) - first
    return order[:first], order[first : first + second], order[first + second :]
