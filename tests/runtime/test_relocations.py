"""What relocations write: AArch64's against what GNU ld writes at the same addresses, and what does not reach."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cross import EMULATOR, GCC, LD, OBJCOPY, needs, run_tool
from linkable import TEXT
from parax.compiler.backend.jit import compile_object
from parax.compiler.targets.target import TARGETS
from parax.errors import IncompatiblePlan
from parax.runtime.elf import ObjectFile
from parax.runtime.relocations import LINKAGES

BASE = 0x7F12_3456_7000
KINDS = LINKAGES["aarch64"].kinds
ADR, ADRP, ADD, LOW_8, LOW_32, LOW_128, BRANCH, PREL32 = 274, 275, 277, 278, 285, 299, 283, 261
# Every field that the small code model's instructions have, with addends, before and behind what they reach.
SOURCE = """
    .text
    .globl first, second, table, pair
first:
    adrp x0, table
    add x0, x0, :lo12:table
    adrp x1, table + 5000
    ldrb w2, [x1, :lo12:table + 5001]
    ldrh w2, [x1, :lo12:table + 5002]
    ldr w2, [x1, :lo12:table + 5004]
    ldr x2, [x1, :lo12:table + 5000]
    ldr q2, [x1, :lo12:table + 5008]
    str s2, [x1, :lo12:pair + 12]
    bl second
    b second + 4
    adr x3, second
    ldr x4, second
    cbz x4, second
    b.ne second + 8
    tbz x4, #40, second
    ret
    .space 3000
    .section .text.later, "ax", %progbits
    .balign 4
second:
    nop
    nop
    bl first
    b first
    adr x3, first + 1
    tbnz w4, #3, first
    adrp x0, pair
    ret
    .section .rodata, "a", %progbits
    .space 48
    .balign 16
table:
    .xword first + 8, second, 7
    .word table - ., first - .
    .space 5100
    .xword second - .
    .data
    .balign 16
    .space 1234 * 16
pair:
    .xword table, pair + 1
"""


def assembled(source: str, folder: Path) -> Path:
    """The object file of an assembly source."""
    text, code = folder / "code.s", folder / "code.o"
    text.write_text(source)
    run_tool(GCC, "-c", text, "-o", code)
    return code


@needs(GCC, LD, OBJCOPY)
def test_aarch64_objects_become_what_the_linker_makes_of_them(tmp_path: Path) -> None:
    code = assembled(SOURCE, tmp_path)
    read = ObjectFile(code.read_bytes(), "code.o", "aarch64")
    memory = bytearray(read.nbytes)
    functions = read.link(memory, BASE, lambda name: None)
    names = [".text", ".data", ".text.later", ".rodata"]  # as they lie in the file
    places = {name: s.place for name, s in zip(names, read._loaded, strict=True)}
    lines = [f"{name} {BASE + place:#x} : {{ *({name}) }}" for name, place in places.items()]
    script = tmp_path / "script"
    script.write_text("SECTIONS {\n" + "\n".join(lines) + "\n}\n")
    linked = tmp_path / "linked"
    run_tool(LD, "-T", script, "-e", "first", code, "-o", linked)
    for name, section in zip(names, read._loaded, strict=True):
        raw = tmp_path / "raw"
        run_tool(OBJCOPY, "-O", "binary", "--only-section", name, linked, raw)
        assert bytes(memory[section.place : section.place + section.size]) == raw.read_bytes(), name
    assert functions["second"] == BASE + places[".text.later"] and functions["table"] == BASE + places[".rodata"] + 48


@needs(GCC)
def test_far_functions_are_called_through_stubs_and_pointers_to_them_through_slots(tmp_path: Path) -> None:
    source = "first:\n bl far\n adrp x0, :got:far\n ldr x0, [x0, :got_lo12:far]\n .globl first\n"
    read = ObjectFile(assembled(source, tmp_path).read_bytes(), "code.o", "aarch64")
    memory, far = bytearray(read.nbytes), 0x1234_5678_9ABC
    read.link(memory, BASE, {"far": far}.get)
    call, page, load = struct.unpack_from("<3I", memory)
    stub = (call & 0x3FF_FFFF) * 4
    assert call >> 26 == 0b100101
    assert struct.unpack_from("<IIQ", memory, stub) == (0x58000050, 0xD61F0200, far)
    pages = (page >> 29 & 3) | (page >> 5 & 0x7FFFF) << 2
    slot = pages * 4096 + (load >> 10 & 0xFFF) * 8
    assert struct.unpack_from("<Q", memory, slot)[0] == far and read.code_end <= slot < read.constants_end


@pytest.mark.parametrize(("kind", "distance", "reaches"), [
    (BRANCH, (1 << 27) - 4, True), (BRANCH, 1 << 27, False), (BRANCH, -(1 << 27), True),
    (BRANCH, -(1 << 27) - 4, False), (BRANCH, 6, False), (ADR, (1 << 20) - 1, True), (ADR, 1 << 20, False),
    (ADRP, (1 << 32) - 4096, True), (ADRP, 1 << 32, False), (ADRP, -(1 << 32), True),
    (ADRP, -(1 << 32) - 4096, False), (ADD, 1 << 40, True), (LOW_8, 3, True), (LOW_32, 3, False),
    (LOW_32, 4, True), (LOW_128, 8, False), (LOW_128, 1 << 40, True), (PREL32, -(1 << 31), True),
    (PREL32, -(1 << 31) - 1, False), (PREL32, 1 << 32, False),
])  # fmt: skip
def test_what_does_not_reach_or_is_not_aligned_is_refused(kind: int, distance: int, reaches: bool) -> None:
    assert (KINDS[kind].apply(0, BASE + distance, BASE) is not None) == reaches


@needs(GCC)
@pytest.mark.parametrize(("line", "found"), [
    ("bl first + 0x8000000", "does not reach"), ("ldr x0, [x0, :lo12:first + 4]", "does not reach"),
    ("movz x0, #:abs_g0:first", "relocation type 263"), ("bl nobody", "unknown symbols nobody"),
])  # fmt: skip
def test_an_object_that_cannot_be_linked_says_why(line: str, found: str, tmp_path: Path) -> None:
    code = assembled(f".balign 8\n.globl first\nfirst:\n {line}\n", tmp_path).read_bytes()
    read = ObjectFile(code, "code.o", "aarch64")
    with pytest.raises(IncompatiblePlan, match=f"code.o: the object code does not link.*{found}"):
        read.link(bytearray(read.nbytes), BASE, lambda name: None)
    with pytest.raises(IncompatiblePlan, match="no x86_64 ELF object"):
        ObjectFile(code, "code.o", "x86_64")


def test_an_architecture_that_nobody_described_is_named() -> None:
    with pytest.raises(IncompatiblePlan, match="an object for riscv64"):
        ObjectFile(b"", "code.o", "riscv64")


RUNNER = """
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
double (*volatile keep)(double) = cbrt;
long (*volatile keep_too)(long) = labs;
int main(int count, char **argument) {
    char *base = (char *)strtoull(argument[2], 0, 0);
    long nbytes = atol(argument[3]);
    FILE *in = fopen(argument[1], "rb");
    int rights = PROT_READ | PROT_WRITE | PROT_EXEC, flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(base, nbytes, rights, flags, -1, 0);
    if (!in || memory != base || fread(memory, 1, nbytes, in) != nbytes)
        return 3;
    __builtin___clear_cache(memory, memory + nbytes);
    double (*root)(double, long) = (void *)strtoull(argument[4], 0, 0);
    long (*number)(void) = (void *)strtoull(argument[5], 0, 0);
    long (*distance)(long) = (void *)strtoull(argument[6], 0, 0);
    for (long i = 0; i < 4; i++)
        printf("%.3f %ld ", root(27.0, i), distance(-number()));
    return 0;
}
"""


@needs(GCC, EMULATOR)
def test_linked_code_runs_at_the_address_that_it_was_linked_for(tmp_path: Path) -> None:
    base, runner = 0x20_0000_0000, tmp_path / "runner"
    (tmp_path / "runner.c").write_text(RUNNER)
    run_tool(GCC, "-O1", "-static", "-no-pie", tmp_path / "runner.c", "-lm", "-o", runner)
    lines = run_tool("aarch64-linux-gnu-nm", runner).splitlines()
    library = {fields[2]: int(fields[0], 16) for line in lines if len(fields := line.split()) == 3}
    read = ObjectFile(compile_object(TEXT, TARGETS["aarch64"]), "code.o", "aarch64")
    memory = bytearray(read.nbytes)
    functions = read.link(memory, base, library.get)
    (tmp_path / "image").write_bytes(memory)
    called = [hex(functions[name]) for name in ("root", "count", "distance")]
    printed = run_tool(EMULATOR, runner, tmp_path / "image", hex(base), str(read.nbytes), *called)
    assert printed.split() == [text for i in range(4) for text in (f"{3 * 2 ** (i / 3):.3f}", f"{41 + i}")]
