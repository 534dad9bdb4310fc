"""An example: a row of a dataset, with each column as an attribute."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class Example:
    """Holds what fields made of one row; ``fields`` name the attributes."""

    @classmethod
    def fromlist(cls, data: Sequence[Any], fields: Sequence[tuple[Any, Any]]) -> Example:
        """From values in the order of the fields; a field of None leaves its column out."""
        example = cls()
        for (name, field), value in zip(fields, data, strict=False):
            if field is None:
                continue
            if isinstance(value, str):
                value = value.rstrip("\n")
            # Several fields may read one column.
            pairs = zip(name, field, strict=True) if isinstance(name, tuple) else [(name, field)]
            for one_name, one_field in pairs:
                setattr(example, one_name, one_field.preprocess(value))
        return example

    @classmethod
    def fromdict(cls, data: Mapping[str, Any], fields: Mapping[str, Any]) -> Example:
        """From values by name; fields are (attribute, field), or a list of such, by name."""
        example = cls()
        for key, targets in fields.items():
            if key not in data:
                raise ValueError(f"Specified key {key} was not found in the input data")
            for name, field in _several(targets):
                setattr(example, name, field.preprocess(data[key]))
        return example

    @classmethod
    def fromJSON(cls, data: str, fields: Mapping[str, Any]) -> Example:
        """From a JSON object; a key such as ``a.b`` looks inside, also into lists."""
        found = json.loads(data)
        example = cls()
        for key, targets in fields.items():
            for name, field in _several(targets):
                value = found
                for part in key.split("."):
                    value = _inside(value, part)
                setattr(example, name, field.preprocess(value))
        return example

    @classmethod
    def fromCSV(
        cls, data: Sequence[str], fields: Any, field_to_index: Mapping[str, int] | None = None
    ) -> Example:
        """From the cells of a line; ``field_to_index`` says where named columns are."""
        if field_to_index is None:
            return cls.fromlist(data, fields)
        return cls.fromdict({name: data[i] for name, i in field_to_index.items()}, fields)


def _several(targets: Any) -> list[tuple[str, Any]]:
    if targets is None:
        return []
    return targets if isinstance(targets, list) else [targets]


def _inside(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [_inside(item, key) for item in value]
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f"Specified key {key} was not found in the input data")
    return value[key]
