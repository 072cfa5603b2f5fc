"""Relocatable ELF objects into executable memory: what a plan's code needs of a linker, and nothing else.

Owns the reading of `code/<target>.o` (ELF64, x86-64; several objects may lie one behind the other), its layout in
memory, its relocations, and the memory's lifetime.
Written here because starting LLVM for it takes 25 ms of a cold start that should take 100 ms without the model's own
work, and because the runtime then needs no compiler library at all. Knows nothing of plans.

Memory is writable while it is filled, then executable or read-only: never both. Calls to functions of the process go
through stubs, because libc lies beyond the 2 GiB that a call reaches. Unwind tables are left out: nothing unwinds.

Objects are in the small code model. Source: System V ABI, AMD64 supplement 1.0, section 4.4 (relocation).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator

from ..errors import IncompatiblePlan

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
_STUB = b"\xff\x25\x00\x00\x00\x00"  # jmp *[rip+0]; the address follows
_STUB_NBYTES = 16
# relocation type → (size in bytes, relative to its own place, through a slot that holds the address)
_KINDS = {
    1: (8, False, False),  # R_X86_64_64
    2: (4, True, False),  # R_X86_64_PC32
    4: (4, True, False),  # R_X86_64_PLT32
    9: (4, True, True),  # R_X86_64_GOTPCREL
    24: (8, True, False),  # R_X86_64_PC64
    41: (4, True, True),  # R_X86_64_GOTPCRELX
    42: (4, True, True),  # R_X86_64_REX_GOTPCRELX
}
_FITS = {4: (-(1 << 31), 1 << 31), 8: (-(1 << 63), 1 << 64)}


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


class LoadedObject:
    """An object file's code, ready to be called for as long as this lives.

    Attributes:
        functions: address of every global symbol the object defines.
    """

    def __init__(self, data: bytes, where: str) -> None:
        """Lay out, relocate and seal.

        Args:
            data: the object file. where: its name, for errors.

        Raises:
            IncompatiblePlan: not an x86-64 object, a damaged one, or one that needs what this process has not.
        """
        self._data, self._where = data, where
        try:
            self._laid_out = self._sections()
            self._link(self._laid_out)
        except (struct.error, IndexError) as error:
            raise self._bad(f"a table ends early: {error}") from error

    def _bad(self, found: object) -> IncompatiblePlan:
        return IncompatiblePlan("the object code does not link", where=self._where, found=found)

    def _sections(self) -> list[_Section]:
        header = _HEADER.unpack_from(self._data)
        if header[0][:6] != _MAGIC or header[1:3] != (1, 62):
            raise self._bad("no x86-64 ELF object")
        start, entry, count = header[6], header[11], header[12]
        if entry != _SECTION.size or not count or start + count * entry > len(self._data):
            raise self._bad("no section table")
        found = []
        for i in range(count):
            _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(self._data, start + i * entry)
            if (kind != _SHT_NOBITS and offset + size > len(self._data)) or size > _MAX_NBYTES:
                raise self._bad(f"section {i} reaches outside the file")
            if flags & _SHF_ALLOC and (flags & _SHF_TLS or kind == _SHT_REL or align > _PAGE or align & (align - 1)):
                raise self._bad(f"section {i} is of a kind that plans have not")
            found.append(_Section(kind, flags, offset, size, link, info, max(1, align)))
        return found

    def ranges(self) -> Iterator[tuple[int, int, str]]:
        """Address, bytes and name of every function, those that only the object itself calls included."""
        symbols, name = self._symbols(self._laid_out)
        for symbol in symbols:
            _, info, _, home, value, nbytes = symbol
            if info & 0xF == _STT_FUNC and nbytes and 0 < home < len(self._laid_out):
                section = self._laid_out[home]
                if section.place >= 0 and value + nbytes <= section.size:
                    yield self._base + section.place + value, nbytes, name(symbol)

    def _symbols(self, sections: list[_Section]) -> tuple[list[tuple[int, ...]], Callable[[tuple[int, ...]], str]]:
        """The symbol table, and what a symbol is called."""
        tables = [s for s in sections if s.kind == _SHT_SYMTAB]
        if len(tables) != 1:
            raise self._bad(f"{len(tables)} symbol tables")
        names = sections[tables[0].link]
        strings = self._data[names.offset : names.offset + names.size]

        def name(symbol: tuple[int, ...]) -> str:
            end = strings.find(b"\0", symbol[0])
            if end < 0:
                raise self._bad("a name without an end")
            return strings[symbol[0] : end].decode("ascii", "replace")

        table = tables[0]
        places = range(table.offset, table.offset + table.size // _SYMBOL.size * _SYMBOL.size, _SYMBOL.size)
        return [_SYMBOL.unpack_from(self._data, at) for at in places], name

    def _link(self, sections: list[_Section]) -> None:
        symbols, name = self._symbols(sections)
        outside = {i: name(s) for i, s in enumerate(symbols) if i and s[3] == _UNDEFINED}
        addresses = {i: _process_address(symbol) for i, symbol in outside.items()}
        missing = sorted(outside[i] for i, address in addresses.items() if address is None)
        if missing:
            raise self._bad(f"unknown symbols {', '.join(missing)}")
        protect = self._lay_out(sections, len(outside), len(symbols))
        stubs = self._stubs({i: address for i, address in addresses.items() if address is not None})
        for i, symbol in enumerate(symbols):
            home = symbol[3]
            if home == _ABSOLUTE:
                addresses[i] = symbol[4]
            elif home and home < len(sections) and sections[home].place >= 0 and symbol[4] <= sections[home].size:
                addresses[i] = self._base + sections[home].place + symbol[4]
        for s in sections:
            if s.kind == _SHT_RELA and sections[s.info].place >= 0:
                self._relocate(s, sections[s.info], addresses, stubs)
        self.functions = {
            name(s): address for i, s in enumerate(symbols) if s[1] >> 4 and s[3] and (address := addresses.get(i))
        }
        protect()

    def _lay_out(self, sections: list[_Section], n_stubs: int, n_symbols: int) -> Callable[[], None]:
        """Copy the sections into fresh memory: code and stubs, then constants and slots, then data.

        Returns:
            What seals the memory once it is relocated.
        """
        loaded = [s for s in sections if s.flags & _SHF_ALLOC and s.kind != _SHT_UNWIND and s.size]
        code = [s for s in loaded if s.flags & _SHF_EXEC]
        constants = [s for s in loaded if not s.flags & (_SHF_EXEC | _SHF_WRITE)]
        data = [s for s in loaded if s.flags & _SHF_WRITE]
        if any(s.flags & _SHF_WRITE for s in code):
            raise self._bad("code that is writable")
        end, bounds = 0, []
        for group, extra in ((code, n_stubs * _STUB_NBYTES), (constants, n_symbols * 8), (data, 0)):
            for s in group:
                s.place = -(-end // s.align) * s.align
                end = s.place + s.size
            extra_at = -(-end // _STUB_NBYTES) * _STUB_NBYTES
            end = -(-(extra_at + extra) // _PAGE) * _PAGE
            bounds.append((extra_at, end))
        if end > _MAX_NBYTES:
            raise self._bad(f"{end} bytes of code")
        self._region = mmap.mmap(-1, max(end, _PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._anchor = ctypes.c_char.from_buffer(self._region)  # keeps the region mapped
        self._base = ctypes.addressof(self._anchor)
        self._stubs_at, self._slots_at = bounds[0][0], bounds[1][0]
        for s in loaded:
            if s.kind != _SHT_NOBITS:
                self._region[s.place : s.place + s.size] = self._data[s.offset : s.offset + s.size]

        def protect() -> None:
            self._protect(0, bounds[0][1], mmap.PROT_READ | mmap.PROT_EXEC)
            self._protect(bounds[0][1], bounds[1][1], mmap.PROT_READ)

        return protect

    def _protect(self, start: int, end: int, rights: int) -> None:
        if end == start:
            return
        pointer, size = ctypes.c_void_p(self._base + start), ctypes.c_size_t(end - start)
        if _PROCESS.mprotect(pointer, size, rights):
            raise self._bad("the system refuses executable memory")

    def _stubs(self, addresses: dict[int, int]) -> dict[int, int]:
        """Symbol → address of the jump to it."""
        found = {}
        for number, (symbol, address) in enumerate(addresses.items()):
            at = self._stubs_at + number * _STUB_NBYTES
            self._region[at : at + 14] = _STUB + struct.pack("<Q", address)
            found[symbol] = self._base + at
        return found

    def _relocate(
        self, table: _Section, target: _Section, addresses: dict[int, int | None], stubs: dict[int, int]
    ) -> None:
        for at in range(table.offset, table.offset + table.size, _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(self._data, at)
            symbol, kind = info >> 32, info & 0xFFFFFFFF
            if kind not in _KINDS:
                raise self._bad(f"relocation type {kind}")
            size, relative, by_slot = _KINDS[kind]
            value = addresses.get(symbol)
            if value is None or offset + size > target.size:
                raise self._bad(f"a relocation of symbol {symbol} that leads nowhere")
            if by_slot:
                slot = self._slots_at + 8 * symbol
                self._region[slot : slot + 8] = struct.pack("<Q", value)
                value = self._base + slot
            elif kind == 4:
                value = stubs.get(symbol, value)
            place = target.place + offset
            value += addend - (self._base + place if relative else 0)
            low, high = _FITS[size]
            if not low <= value < high:
                raise self._bad(f"a relocation of symbol {symbol} that does not reach")
            self._region[place : place + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


_PROCESS = ctypes.CDLL(None)


def _process_address(name: str) -> int | None:
    """Where a function of this process's own libraries lies."""
    try:
        function = getattr(_PROCESS, name)
    except AttributeError:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
