"""Relocatable ELF objects: what a plan's code needs of a linker, and nothing else.

Owns the reading of `code/<target>.o` (ELF64, little-endian; several objects may lie one behind the other), its layout
in memory, and its linking for a place in memory. `relocations` knows what is written; `object_loader` owns the memory.
Written here because starting LLVM for it takes 25 ms of a cold start that should take 100 ms without the model's own
work, and because the runtime then needs no compiler library at all. Knows nothing of plans.

Calls to functions of the process go through stubs, because libc lies beyond the reach of a call. x86-64's unwind tables
are left out: nothing unwinds. Objects are in the small code model.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator

from ..errors import IncompatiblePlan
from .relocations import LINKAGES, STUB_NBYTES

_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL, _SHT_UNWIND = 2, 4, 8, 9, 0x70000001
_STT_FUNC = 2
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS = 1, 2, 4, 0x400
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_PAGE = mmap.PAGESIZE
_MAX_NBYTES = 1 << 30
_SLOT_NBYTES = 8


def objects_in(data: bytes) -> list[bytes]:
    """The objects of a file, which may lie one behind the other; whatever else it is, is one for `LoadedObject`."""
    found = []
    while data:
        end = _end(data)
        found.append(data[:end])
        data = data[end:].lstrip(b"\0") if end < len(data) else b""
        if not data.startswith(_MAGIC):
            break
    return found or [data]


def _end(data: bytes) -> int:
    """Where an object ends: behind its sections and their table. All of the data where it is none."""
    try:
        header = _HEADER.unpack_from(data)
        start, count = header[6], header[12]
        end = max(_HEADER.size, start + count * _SECTION.size)
        for i in range(count):
            _, kind, _, _, offset, size, *_ = _SECTION.unpack_from(data, start + i * _SECTION.size)
            end = max(end, offset + (0 if kind == _SHT_NOBITS else size))
    except struct.error:
        return len(data)
    return min(end, len(data)) if data.startswith(_MAGIC) else len(data)


class _Section:
    """A section's header, and where the section is in the region once it is laid out (before: −1)."""

    def __init__(self, kind: int, flags: int, offset: int, size: int, link: int, info: int, align: int) -> None:
        self.kind, self.flags, self.offset, self.size = kind, flags, offset, size
        self.link, self.info, self.align = link, info, align
        self.place = -1


class ObjectFile:
    """A checked object file and where its parts go in memory: code and stubs, constants and slots, then data.

    Attributes:
        nbytes: of memory. code_end, constants_end: where code and constants end in it, at the end of a page.
    """

    def __init__(self, data: bytes, where: str, arch: str) -> None:
        """Read and lay out.

        Args:
            data: the object file. where: its name, for errors. arch: whose code it must be.

        Raises:
            IncompatiblePlan: another architecture's object, or a damaged one.
        """
        self._data, self._where, self._arch = data, where, arch
        if arch not in LINKAGES:
            raise self.bad(f"an object for {arch}, which nobody has described how to link")
        self._linkage = LINKAGES[arch]
        try:
            self._sections = self._read_sections()
            self._symbols, self._name = self._read_symbols()
        except (struct.error, IndexError) as error:
            raise self._ends_early(error) from error
        self._outside = {i: self._name(s) for i, s in enumerate(self._symbols) if i and s[3] == _UNDEFINED}
        self._lay_out()

    def bad(self, found: object) -> IncompatiblePlan:
        """The error that says what is wrong with it."""
        return IncompatiblePlan("the object code does not link", where=self._where, found=found)

    def _ends_early(self, error: Exception) -> IncompatiblePlan:
        return self.bad(f"a table ends early: {error}")

    def link(self, memory: mmap.mmap | bytearray, base: int, find: Callable[[str], int | None]) -> dict[str, int]:
        """Fill memory that will lie at address `base`, the start of a page.

        Args:
            memory: `nbytes` of it, zeroed. find: the address of a function of the process by name, or None.

        Returns:
            Address of every global symbol that the object defines, by name.

        Raises:
            IncompatiblePlan: it is damaged, or needs what the process has not.
        """
        found = {i: find(symbol) for i, symbol in self._outside.items()}
        missing = sorted(self._outside[i] for i, address in found.items() if address is None)
        if missing:
            raise self.bad(f"unknown symbols {', '.join(missing)}")
        addresses = {i: address for i, address in found.items() if address is not None}
        for s in self._loaded:
            if s.kind != _SHT_NOBITS:
                memory[s.place : s.place + s.size] = self._data[s.offset : s.offset + s.size]
        stubs = self._write_stubs(memory, base, addresses)
        addresses |= self._own_addresses(base)
        try:
            for s in self._sections:
                if s.kind == _SHT_RELA and self._sections[s.info].place >= 0:
                    self._relocate(memory, base, s, addresses, stubs)
            return {
                self._name(s): address
                for i, s in enumerate(self._symbols)
                if s[1] >> 4 and s[3] and (address := addresses.get(i))
            }
        except (struct.error, IndexError) as error:
            raise self._ends_early(error) from error

    def ranges(self, base: int) -> Iterator[tuple[int, int, str]]:
        """Address, bytes and name of every function, those that only the object itself calls included."""
        for symbol in self._symbols:
            _, info, _, home, value, nbytes = symbol
            if info & 0xF == _STT_FUNC and nbytes and 0 < home < len(self._sections):
                section = self._sections[home]
                if section.place >= 0 and value + nbytes <= section.size:
                    yield base + section.place + value, nbytes, self._name(symbol)

    def _read_sections(self) -> list[_Section]:
        header = _HEADER.unpack_from(self._data)
        if header[0][:6] != _MAGIC or header[1:3] != (1, self._linkage.machine):
            raise self.bad(f"no {self._arch} ELF object")
        start, entry, count = header[6], header[11], header[12]
        if entry != _SECTION.size or not count or start + count * entry > len(self._data):
            raise self.bad("no section table")
        found = []
        for i in range(count):
            _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(self._data, start + i * entry)
            if (kind != _SHT_NOBITS and offset + size > len(self._data)) or size > _MAX_NBYTES:
                raise self.bad(f"section {i} reaches outside the file")
            if flags & _SHF_ALLOC and (flags & _SHF_TLS or kind == _SHT_REL or align > _PAGE or align & (align - 1)):
                raise self.bad(f"section {i} is of a kind that plans have not")
            found.append(_Section(kind, flags, offset, size, link, info, max(1, align)))
        return found

    def _read_symbols(self) -> tuple[list[tuple[int, ...]], Callable[[tuple[int, ...]], str]]:
        """The symbol table, and what a symbol is called."""
        tables = [s for s in self._sections if s.kind == _SHT_SYMTAB]
        if len(tables) != 1:
            raise self.bad(f"{len(tables)} symbol tables")
        names = self._sections[tables[0].link]
        strings = self._data[names.offset : names.offset + names.size]

        def name(symbol: tuple[int, ...]) -> str:
            end = strings.find(b"\0", symbol[0])
            if end < 0:
                raise self.bad("a name without an end")
            return strings[symbol[0] : end].decode("ascii", "replace")

        table = tables[0]
        places = range(table.offset, table.offset + table.size // _SYMBOL.size * _SYMBOL.size, _SYMBOL.size)
        return [_SYMBOL.unpack_from(self._data, at) for at in places], name

    def _lay_out(self) -> None:
        """Give every section that is loaded its place, and the stubs and slots theirs."""
        loaded = [s for s in self._sections if s.flags & _SHF_ALLOC and s.kind != _SHT_UNWIND and s.size]
        code = [s for s in loaded if s.flags & _SHF_EXEC]
        constants = [s for s in loaded if not s.flags & (_SHF_EXEC | _SHF_WRITE)]
        data = [s for s in loaded if s.flags & _SHF_WRITE]
        if any(s.flags & _SHF_WRITE for s in code):
            raise self.bad("code that is writable")
        end, bounds = 0, []
        extras = len(self._outside) * STUB_NBYTES, len(self._symbols) * _SLOT_NBYTES, 0
        for group, extra in zip((code, constants, data), extras, strict=True):
            for s in group:
                s.place = -(-end // s.align) * s.align
                end = s.place + s.size
            extra_at = -(-end // STUB_NBYTES) * STUB_NBYTES
            end = -(-(extra_at + extra) // _PAGE) * _PAGE
            bounds.append((extra_at, end))
        if end > _MAX_NBYTES:
            raise self.bad(f"{end} bytes of code")
        self._loaded, self.nbytes = loaded, max(end, _PAGE)
        (self._stubs_at, self.code_end), (self._slots_at, self.constants_end), _ = bounds

    def _own_addresses(self, base: int) -> dict[int, int]:
        """Symbol → address, of those that the object defines."""
        found = {}
        for i, (_, _, _, home, value, _) in enumerate(self._symbols):
            if home == _ABSOLUTE:
                found[i] = value
            elif home and home < len(self._sections):
                section = self._sections[home]
                if section.place >= 0 and value <= section.size:
                    found[i] = base + section.place + value
        return found

    def _write_stubs(self, memory: mmap.mmap | bytearray, base: int, addresses: dict[int, int]) -> dict[int, int]:
        """Symbol → address of the jump to it."""
        found = {}
        for number, (symbol, address) in enumerate(addresses.items()):
            at, stub = self._stubs_at + number * STUB_NBYTES, self._linkage.stub(address)
            memory[at : at + len(stub)] = stub
            found[symbol] = base + at
        return found

    def _relocate(
        self, memory: mmap.mmap | bytearray, base: int, table: _Section, addresses: dict[int, int],
        stubs: dict[int, int],
    ) -> None:  # fmt: skip
        target, kinds = self._sections[table.info], self._linkage.kinds
        for at in range(table.offset, table.offset + table.size, _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(self._data, at)
            symbol, kind = info >> 32, kinds.get(info & 0xFFFFFFFF)
            if kind is None:
                raise self.bad(f"relocation type {info & 0xFFFFFFFF}")
            address = addresses.get(symbol)
            if address is None or offset + kind.nbytes > target.size:
                raise self.bad(f"a relocation of symbol {symbol} that leads nowhere")
            if kind.by_slot:
                slot = self._slots_at + _SLOT_NBYTES * symbol
                memory[slot : slot + _SLOT_NBYTES] = struct.pack("<Q", address)
                address = base + slot
            elif kind.by_stub:
                address = stubs.get(symbol, address)
            place = target.place + offset
            end = place + kind.nbytes
            new = kind.apply(int.from_bytes(memory[place:end], "little"), address + addend, base + place)
            if new is None:
                raise self.bad(f"a relocation of symbol {symbol} that does not reach")
            memory[place:end] = new.to_bytes(kind.nbytes, "little")
