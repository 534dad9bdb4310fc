"""Sentences with tags: a word and its tags on each line, an empty line between sentences."""

from __future__ import annotations

from typing import Any

from weft.text import data


class SequenceTaggingDataset(data.Dataset):
    """Examples whose columns are lists: words and their tags."""

    @staticmethod
    def sort_key(example: Any) -> int:
        """The number of words."""
        return max((len(column) for column in vars(example).values()), default=0)

    def __init__(
        self,
        path: str,
        fields: Any,
        encoding: str = "utf-8",
        separator: str = "\t",
        **kwargs: Any,
    ) -> None:
        examples: list[data.Example] = []
        rows: list[list[str]] = []
        with open(path, encoding=encoding) as file:
            for line in [*file, ""]:
                if line.strip():
                    rows.append(line.strip().split(separator))
                elif rows:
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    examples.append(data.Example.fromlist(columns, fields))
                    rows = []
        super().__init__(examples, fields, **kwargs)
