"""Objects into memory: what they compute, what they may reach, and that no damaged object harms the process."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

import fake_plans
from linkable import TEXT
from parax.errors import IncompatiblePlan
from parax.runtime.elf import objects_in
from parax.runtime.native import host_features
from parax.runtime.object_loader import LoadedObject

ONE, TWO = "define i64 @one() {\n ret i64 1\n}", "define i64 @two() {\n ret i64 2\n}"
pytestmark = pytest.mark.skipif(fake_plans.ARCH != "x86_64", reason="objects are for x86-64")


@pytest.fixture(scope="module")
def code() -> bytes:
    return fake_plans.object_code(TEXT)


def test_constants_data_pointers_and_calls_into_the_process(code: bytes) -> None:
    loaded = LoadedObject(code, "here")
    root = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(loaded.functions["root"])
    assert [round(root(27.0, i) ** 3) for i in range(4)] == [27, 54, 108, 216]
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.functions["count"])
    assert [count(), count()] == [41, 42]
    again = LoadedObject(code, "again")
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(again.functions["count"])() == 41
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.functions["distance"])(-7) == 7
    assert "scale" not in loaded.functions


def test_memory_is_never_writable_and_executable(code: bytes) -> None:
    loaded = LoadedObject(code, "here")
    address = loaded.functions["root"]
    rights = [line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines() if _covers(line, address)]
    assert rights == ["r-xp"]


def _covers(line: str, address: int) -> bool:
    start, _, end = line.split()[0].partition("-")
    return int(start, 16) <= address < int(end, 16)


@pytest.mark.parametrize("broken", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(200), b"MZ" + bytes(100)])
def test_what_is_no_object(broken: bytes) -> None:
    with pytest.raises(IncompatiblePlan, match="here: the object code does not link"):
        LoadedObject(broken, "here")


def test_a_missing_symbol_is_named() -> None:
    text = "declare void @nobody()\ndefine void @f() {\n  call void @nobody()\n  ret void\n}"
    with pytest.raises(IncompatiblePlan, match="unknown symbols nobody"):
        LoadedObject(fake_plans.object_code(text), "here")


def test_damaged_objects_are_refused_or_loaded_but_never_crash(code: bytes, tmp_path: Path) -> None:
    """In a child process: every byte of headers and tables in turn is damaged; nothing is called."""
    path = tmp_path / "code.o"
    path.write_bytes(code)
    script = f"""
import random
from parax.errors import ParaxError
from parax.runtime.object_loader import LoadedObject
whole, random_ = open({str(path)!r}, "rb").read(), random.Random(1)
refused = 0
for number in range(3000):
    data = bytearray(whole[: random_.randrange(len(whole))] if number % 10 == 0 else whole)
    for _ in range(random_.randrange(1, 4)):
        n = len(whole)
        at = random_.choice((random_.randrange(64), random_.randrange(n), n - random_.randrange(1500)))
        if at < len(data):
            data[at] ^= 1 << random_.randrange(8)
    try:
        LoadedObject(bytes(data), "x")
    except ParaxError:
        refused += 1
print(refused)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


def test_features_are_those_that_llvm_sees() -> None:
    llvm_sees = {name for name, on in llvm.get_host_cpu_features().items() if on}
    names = "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave avx512f avx512bw " \
            "avx512cd avx512dq avx512vl avx512bf16 avx512vnni"
    assert host_features() & set(names.split()) == llvm_sees & set(names.split())


@pytest.mark.parametrize("gap", [0, 1, 15, 4096])
def test_objects_may_lie_one_behind_the_other(gap: int) -> None:
    one, two = fake_plans.object_code(ONE), fake_plans.object_code(TWO)
    assert objects_in(one) == [one]
    found = objects_in(one + bytes(gap) + two)
    assert found == [one, two]
    loaded = [LoadedObject(data, "here") for data in found]
    functions = [made.functions[name] for made, name in zip(loaded, ("one", "two"))]
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(address)() for address in functions] == [1, 2]


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01", bytes(1000), b"\x7fELF\x02\x01" + bytes(1000),
                                  b"\x7fELF\x02\x01" * 1000, b"nonsense" * 100])  # fmt: skip
def test_what_is_no_object_stays_in_one_or_a_few_pieces(data: bytes) -> None:
    found = objects_in(data)
    assert len(found) <= 1 + len(data) // 64 and all(data.startswith(found[0]) for _ in found)
    for piece in found[:1]:
        with pytest.raises(IncompatiblePlan):
            LoadedObject(piece, "here")
