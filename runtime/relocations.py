"""What a relocation writes, by architecture: the arithmetic of the linker's part that object code needs.

Owns the types that code in the small code model uses, the fields that their results go into and what they must fit, and
the jump to a function that lies too far away for a call. Knows numbers and bytes; `elf` knows files and symbols.

S is the symbol's address, A the addend, P the relocated place; pages have 4 KiB. Sources: System V ABI, AMD64
supplement 1.0, section 4.4; ELF for the Arm 64-bit Architecture 2024Q3, section 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

STUB_NBYTES = 16
_PAGE_BITS, _LOW_BITS = 12, 0xFFF


@dataclass(frozen=True)
class Kind:
    """A type of relocation.

    Attributes:
        value: (S + A, P) → the number that is written.
        low, high: that number must be in [low, high).
        scale: it must be a multiple of this.
        by_slot: S is the address of eight bytes that hold the symbol's address.
        by_stub: a call or jump, which may lead to a stub for the symbol instead.
        shift, width, at: the bits [shift, shift + width) of the number go to bit `at` of the instruction; where width
            is 0 the whole number is the place's new content.
        nbytes: of the place.
    """

    value: Callable[[int, int], int]
    low: int
    high: int
    scale: int = 1
    by_slot: bool = False
    by_stub: bool = False
    shift: int = 0
    width: int = 0
    at: int = 0
    nbytes: int = 4

    def apply(self, old: int, target: int, place: int) -> int | None:
        """The place's new content for S + A and P; None where the number does not fit."""
        value = self.value(target, place)
        if not self.low <= value < self.high or value % self.scale:
            return None
        if not self.width:
            return value & ((1 << 8 * self.nbytes) - 1)
        mask = (1 << self.width) - 1
        return old & ~(mask << self.at) | (value >> self.shift & mask) << self.at


class _Adr(Kind):
    """The number of an `adr` or `adrp`, in two fields: its lowest two bits in bits 29 and 30, the rest from bit 5."""

    def apply(self, old: int, target: int, place: int) -> int | None:
        value = self.value(target, place)
        if not self.low <= value < self.high:
            return None
        number = value >> self.shift
        return old & ~(3 << 29 | 0x7FFFF << 5) | (number & 3) << 29 | (number >> 2 & 0x7FFFF) << 5


@dataclass(frozen=True)
class Linkage:
    """How code of an architecture is linked.

    Attributes:
        machine: its number in an ELF header. kinds: relocation type → what it writes.
        jump: instructions that go to the address in the eight bytes behind them; with it, STUB_NBYTES at most.
    """

    machine: int
    jump: bytes
    kinds: Mapping[int, Kind]

    def stub(self, address: int) -> bytes:
        """A jump to an address, however far away."""
        return self.jump + struct.pack("<Q", address)


def _absolute(target: int, place: int) -> int:
    return target


def _relative(target: int, place: int) -> int:
    return target - place


def _pages(target: int, place: int) -> int:
    return (target >> _PAGE_BITS << _PAGE_BITS) - (place >> _PAGE_BITS << _PAGE_BITS)


def _in_page(target: int, place: int) -> int:
    return target & _LOW_BITS


def _branch(bits: int, width: int, at: int, by_stub: bool = False) -> Kind:
    """A jump to an instruction at most 2^bits bytes away."""
    return Kind(_relative, -(1 << bits), 1 << bits, 4, by_stub=by_stub, shift=2, width=width, at=at)


def _low_bits(scale_bits: int, by_slot: bool = False) -> Kind:
    """The place in its page, in units of what is loaded or stored there."""
    return Kind(_in_page, 0, 1 << _PAGE_BITS, 1 << scale_bits, by_slot, shift=scale_bits, width=12 - scale_bits, at=10)


_SIGNED_32, _UNSIGNED_64 = (-(1 << 31), 1 << 31), (-(1 << 63), 1 << 64)
_RELATIVE_32 = Kind(_relative, *_SIGNED_32)
_SLOT_32 = Kind(_relative, *_SIGNED_32, by_slot=True)

_X86_64 = Linkage(62, b"\xff\x25\x00\x00\x00\x00", {  # jmp *[rip+0]
    1: Kind(_absolute, *_UNSIGNED_64, nbytes=8),  # R_X86_64_64
    2: _RELATIVE_32,  # R_X86_64_PC32
    4: Kind(_relative, *_SIGNED_32, by_stub=True),  # R_X86_64_PLT32
    9: _SLOT_32,  # R_X86_64_GOTPCREL
    24: Kind(_relative, *_UNSIGNED_64, nbytes=8),  # R_X86_64_PC64
    41: _SLOT_32,  # R_X86_64_GOTPCRELX
    42: _SLOT_32,  # R_X86_64_REX_GOTPCRELX
})  # fmt: skip

_ADRP_RANGE = -(1 << 32), 1 << 32
_AARCH64 = Linkage(183, struct.pack("<II", 0x58000050, 0xD61F0200), {  # ldr x16, .+8; br x16
    257: Kind(_absolute, *_UNSIGNED_64, nbytes=8),  # R_AARCH64_ABS64
    260: Kind(_relative, *_UNSIGNED_64, nbytes=8),  # R_AARCH64_PREL64
    261: Kind(_relative, -(1 << 31), 1 << 32),  # R_AARCH64_PREL32
    273: _branch(20, 19, 5),  # R_AARCH64_LD_PREL_LO19
    274: _Adr(_relative, -(1 << 20), 1 << 20),  # R_AARCH64_ADR_PREL_LO21
    275: _Adr(_pages, *_ADRP_RANGE, shift=12),  # R_AARCH64_ADR_PREL_PG_HI21
    277: _low_bits(0),  # R_AARCH64_ADD_ABS_LO12_NC
    278: _low_bits(0),  # R_AARCH64_LDST8_ABS_LO12_NC
    279: _branch(15, 14, 5),  # R_AARCH64_TSTBR14
    280: _branch(20, 19, 5),  # R_AARCH64_CONDBR19
    282: _branch(27, 26, 0, by_stub=True),  # R_AARCH64_JUMP26
    283: _branch(27, 26, 0, by_stub=True),  # R_AARCH64_CALL26
    284: _low_bits(1),  # R_AARCH64_LDST16_ABS_LO12_NC
    285: _low_bits(2),  # R_AARCH64_LDST32_ABS_LO12_NC
    286: _low_bits(3),  # R_AARCH64_LDST64_ABS_LO12_NC
    299: _low_bits(4),  # R_AARCH64_LDST128_ABS_LO12_NC
    311: _Adr(_pages, *_ADRP_RANGE, shift=12, by_slot=True),  # R_AARCH64_ADR_GOT_PAGE
    312: _low_bits(3, by_slot=True),  # R_AARCH64_LD64_GOT_LO12_NC
})  # fmt: skip

LINKAGES = {"x86_64": _X86_64, "aarch64": _AARCH64}
"""By architecture, as LLVM spells it."""
