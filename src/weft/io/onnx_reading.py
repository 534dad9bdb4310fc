"""What an ONNX model says of itself, read from its bytes: no package, no code, no weights.

An ONNX file is a message in protobuf's wire format: fields with a number, a wire type and a value.
The reader knows the few fields that describe a model and steps over the others. Every length is
checked against the bytes that are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Names of TensorProto.DataType, by number.
DTYPES = (
    "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool",
    "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint4", "int4",
    "float4_e2m1", "float8_e8m0",
)  # fmt: skip
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1  # TensorProto.DataLocation
_DEEPEST = 16  # graphs inside nodes inside graphs


class NotOnnx(ValueError):
    """The bytes are not an ONNX model, or a damaged one."""


@dataclass
class OnnxTensor:
    """A weight, an input or an output; a length that is not known is a name or ``?``."""

    name: str
    dtype: str
    shape: list[Any]
    external: bool = False


@dataclass
class OnnxModel:
    """What a model says of itself."""

    ir_version: int = 0
    producer: str = ""
    graph: str = ""
    opsets: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    inputs: list[OnnxTensor] = field(default_factory=list)
    outputs: list[OnnxTensor] = field(default_factory=list)
    weights: list[OnnxTensor] = field(default_factory=list)
    nodes: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    functions: int = 0


def fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message: number, wire type and value."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise NotOnnx("a field has the number 0")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise NotOnnx(f"wire type {kind}")
        if size > end - at:
            raise NotOnnx(
                f"a field of {size} bytes where {end - at} are left: cut short or damaged"
            )
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(data) or shift > 63:
            raise NotOnnx("a number is cut short or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def read(data: memoryview) -> OnnxModel:
    """Describe the model in these bytes."""
    model, graphs = OnnxModel(), 0
    for number, kind, value in fields(data):
        if number == 1 and kind == _VARINT:
            model.ir_version = value
        elif number in (2, 3) and kind == _BYTES:
            model.producer = f"{model.producer} {_text(value)}".strip()
        elif number == 7 and kind == _BYTES:
            graphs += 1
            _graph(value, model)
        elif number == 8 and kind == _BYTES:
            named = _by_number(value)
            model.opsets[_text(named.get(1, b""))] = _whole(named.get(2, 0))
        elif number == 14 and kind == _BYTES:
            named = _by_number(value)
            model.metadata[_text(named.get(1, b""))] = _text(named.get(2, b""))
        elif number == 25:
            model.functions += 1
    if graphs != 1 or not model.ir_version:
        raise NotOnnx("there is no graph in it")
    return model


def _by_number(data: memoryview) -> dict[int, Any]:
    """The last value of each field."""
    return {number: value for number, _, value in fields(data)}


def _text(value: Any) -> str:
    if not isinstance(value, (memoryview, bytes)):
        raise NotOnnx("a number where a string belongs")
    return bytes(value).decode("utf-8", "replace")


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise NotOnnx("a string where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise NotOnnx("a number where a message belongs")
    return value


def _graph(data: memoryview, model: OnnxModel) -> None:
    initialised = set()
    inputs = []
    for number, _, value in fields(data):
        if number == 1:
            _node(_message(value), model, 0)
        elif number == 2:
            model.graph = _text(value)
        elif number == 5:
            weight = _tensor(_message(value))
            initialised.add(weight.name)
            model.weights.append(weight)
        elif number == 11:
            inputs.append(_value_info(_message(value)))
        elif number == 12:
            model.outputs.append(_value_info(_message(value)))
    model.inputs = [each for each in inputs if each.name not in initialised]


def _node(data: memoryview, model: OnnxModel, depth: int) -> None:
    if depth > _DEEPEST:
        raise NotOnnx("graphs are nested too deeply")
    kind, domain = "", ""
    for number, _, value in fields(data):
        if number == 4:
            kind = _text(value)
        elif number == 7:
            domain = _text(value)
        elif number == 5:  # attributes, which may hold graphs
            for inner, _, part in fields(_message(value)):
                if inner in (6, 11):
                    for n, _, node in fields(_message(part)):
                        if n == 1:
                            _node(_message(node), model, depth + 1)
    model.nodes += 1
    model.ops[f"{domain}.{kind}" if domain not in ("", "ai.onnx") else kind] += 1


def _tensor(data: memoryview) -> OnnxTensor:
    found = OnnxTensor("", DTYPES[0], [])
    for number, kind, value in fields(data):
        if number == 1 and kind == _VARINT:
            found.shape.append(_whole(value))
        elif number == 1:  # packed
            at, packed = 0, _message(value)
            while at < len(packed):
                length, at = _varint(packed, at)
                found.shape.append(_whole(length))
        elif number == 2:
            found.dtype = _dtype(_whole(value))
        elif number == 8:
            found.name = _text(value)
        elif number == 14:
            found.external = value == _EXTERNAL
    if any(length < 0 for length in found.shape):
        raise NotOnnx(f"{found.name!r} has shape {found.shape}")
    return found


def _dtype(number: int) -> str:
    return DTYPES[number] if 0 <= number < len(DTYPES) else f"type {number}"


def _value_info(data: memoryview) -> OnnxTensor:
    named = _by_number(data)
    found = OnnxTensor(_text(named.get(1, b"")), "", [])
    if 2 not in named:
        return found
    kinds = _by_number(_message(named[2]))
    if 1 not in kinds:
        found.dtype = next((w for n, w in _CONTAINERS.items() if n in kinds), "unknown")
        return found
    tensor = _by_number(_message(kinds[1]))
    found.dtype = _dtype(_whole(tensor.get(1, 0)))
    if 2 in tensor:
        for number, _, dim in fields(_message(tensor[2])):
            if number == 1:
                length = _by_number(_message(dim))
                known = (
                    _text(length[2]) if 2 in length else _whole(length[1]) if 1 in length else "?"
                )
                found.shape.append(known)
    return found


_CONTAINERS = {4: "sequence", 5: "map", 8: "sparse tensor", 9: "optional"}
