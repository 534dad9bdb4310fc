"""CRC-32C, the checksum of event files.

A byte after the other takes Python 50 ns each, which is fine for the number of a scalar. Longer
data are cut into equal pieces that NumPy works through side by side, and the sums of the pieces
are joined: the checksum is linear, so what a piece adds is its own sum, moved on by the length of
what follows it.
"""

from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, lowest bit first
_FEW = 2048  # bytes up to which the plain loop is faster
_ALL = 0xFFFFFFFF


def _make_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _make_table()


@functools.cache
def _by_pairs() -> np.ndarray:
    """What two bytes at once add to a sum."""
    one, pairs = np.array(_TABLE, np.uint32), np.arange(1 << 16, dtype=np.uint32)
    first = one[pairs & 255] ^ pairs >> 8
    return one[first & 255] ^ first >> 8


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(data) <= _FEW:
        return _plain(_ALL, data) ^ _ALL
    pieces = 1 << (len(data).bit_length() // 2)
    length = len(data) // pieces & ~1
    body = np.frombuffer(data, "<u2", pieces * length // 2).reshape(pieces, length // 2)
    sums, table = np.zeros(pieces, np.uint32), _by_pairs()
    sums[0] = _ALL
    for column in np.ascontiguousarray(body.T):
        # The lower half, without the sum's upper one: what is out of 16 bits is cut off.
        sums = table.take(sums.astype(np.uint16) ^ column) ^ (sums >> 16)
    first, second, third, fourth = _moving_on(length)
    total = 0
    for piece in sums.tolist():
        total = piece ^ (
            first[total & 255]
            ^ second[total >> 8 & 255]
            ^ third[total >> 16 & 255]
            ^ fourth[total >> 24]
        )
    return _plain(total, data[pieces * length :]) ^ _ALL


def masked(data: bytes | memoryview) -> int:
    """The checksum as event files hold it, turned and shifted."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ALL


def _plain(total: int, data: bytes | memoryview) -> int:
    table = _TABLE
    for byte in data:
        total = table[(total ^ byte) & 255] ^ total >> 8
    return total


@functools.lru_cache(32)
def _moving_on(length: int) -> list[list[int]]:
    """Tables that move a sum over so many zero bytes, one for each byte of the sum."""
    # Column k of the matrix is what bit k of a sum becomes. One zero byte first, then squaring.
    one = [_plain(1 << k, b"\0") for k in range(32)]
    matrix = [1 << k for k in range(32)]
    while length:
        if length & 1:
            matrix = [_times(one, column) for column in matrix]
        one = [_times(one, column) for column in one]
        length >>= 1
    return [[_times(matrix, value << 8 * k) for value in range(256)] for k in range(4)]


def _times(matrix: list[int], vector: int) -> int:
    total, k = 0, 0
    while vector:
        if vector & 1:
            total ^= matrix[k]
        vector >>= 1
        k += 1
    return total
