"""A linker for cached object files, so that compiled code can run without LLVM.

Kernels are compiled for the large code model, in which every address in the code is a whole word.
So linking is copying: sections to new memory, and the addresses of symbols into them. Other object
files (for another processor, with other relocations) are declined, and LLVM links them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import struct
from typing import Any, NamedTuple

from weft.native import threads
from weft.native.once import once

X86_64, RELOCATABLE, ABSOLUTE = 62, 1, 1  # as ELF and the processor's ABI number them
SYMBOLS, RELOCATIONS, NO_BITS, UNWINDING = 2, 4, 8, 0x70000001
WRITES, ALLOCATED = 1, 2
PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
READ_ONLY = getattr(mmap, "PROT_READ", 0) | getattr(mmap, "PROT_EXEC", 0)


class Unlinkable(Exception):
    """An object file that LLVM has to link."""


class Section(NamedTuple):
    """What an ELF file says of a section."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def _sections(code: bytes) -> list[Section]:
    if len(code) < 64 or code[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        raise Unlinkable("not an ELF file")
    kind, machine = struct.unpack_from("<HH", code, 16)
    if (kind, machine) != (RELOCATABLE, X86_64):
        raise Unlinkable("not an object file for this platform")
    (start,) = struct.unpack_from("<Q", code, 0x28)
    (count,) = struct.unpack_from("<H", code, 0x3C)
    return [Section(*struct.unpack_from("<IIQQQQIIQQ", code, start + 64 * i)) for i in range(count)]


def _word(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


@once
def libraries() -> list[Any]:
    """Where the functions of C are found."""
    found = [ctypes.CDLL(None)]
    with contextlib.suppress(OSError):
        found.append(ctypes.CDLL("libm.so.6"))
    return found


@once
def outside(name: str) -> int:
    """The address of a function that compiled code calls."""
    known = threads.symbols().get(name)
    if known:
        return known
    for library in libraries():
        function = getattr(library, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise Unlinkable(f"unknown symbol {name}")


def link(code: bytes, wanted: list[str]) -> tuple[Any, list[int]]:
    """What keeps an object file's memory, and the addresses of functions in it."""
    sections = _sections(code)
    # What is written to has pages of its own.
    places: dict[int, tuple[int, int]] = {}
    sizes = [0, 0]
    for i, s in enumerate(sections):
        if s.flags & ALLOCATED and s.kind != UNWINDING:  # nothing here raises exceptions
            part = s.flags & WRITES
            start = -(-sizes[part] // max(s.alignment, 1)) * max(s.alignment, 1)
            places[i], sizes[part] = (part, start), start + s.size
    # Private, since a forked child must not write what its parent reads.
    blocks = [mmap.mmap(-1, max(size, 1), PRIVATE) for size in sizes]
    bases = [ctypes.addressof(ctypes.c_char.from_buffer(block)) for block in blocks]
    for i, (part, start) in places.items():
        s = sections[i]
        if s.kind != NO_BITS:
            blocks[part][start : start + s.size] = code[s.offset : s.offset + s.size]
    homes = {i: bases[part] + start for i, (part, start) in places.items()}
    found, addresses = _symbols(code, sections, homes)
    for s in sections:
        if s.kind == RELOCATIONS and s.info in places:
            part, start = places[s.info]
            _relocate(code, s, blocks[part], start, addresses)
    _protect(bases[0], len(blocks[0]))
    missing = [name for name in wanted if name not in found]
    if missing:
        raise Unlinkable(f"undefined symbols: {missing}")
    return blocks, [found[name] for name in wanted]


def _symbols(
    code: bytes, sections: list[Section], homes: dict[int, int]
) -> tuple[dict[str, int], list[int]]:
    """The addresses of an object file's symbols, by name and in order; others are 0."""
    (table,) = (s for s in sections if s.kind == SYMBOLS)
    names = sections[table.link].offset
    found, addresses = {}, []
    for k in range(table.size // table.entry):
        name, _, _, home, value, _ = struct.unpack_from(
            "<IBBHQQ", code, table.offset + k * table.entry
        )
        address = homes[home] + value if home in homes else 0
        word = _word(code, names + name) if name else ""
        if home == 0 and word:
            address = outside(word)
        if word:
            found[word] = address
        addresses.append(address)
    return found, addresses


def _relocate(code: bytes, s: Section, block: mmap.mmap, start: int, addresses: list[int]) -> None:
    for k in range(s.size // s.entry):
        at, info, more = struct.unpack_from("<QQq", code, s.offset + k * s.entry)
        target = addresses[info >> 32]
        if info & 0xFFFFFFFF != ABSOLUTE or not target:
            raise Unlinkable("an unsupported relocation type")
        struct.pack_into("<Q", block, start + at, (target + more) % (1 << 64))


def _protect(address: int, size: int) -> None:
    """From here on the code can be run and no longer written to."""
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(pages), READ_ONLY):
        raise Unlinkable("memory that can't be made executable")
