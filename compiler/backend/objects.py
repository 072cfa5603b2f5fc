"""Object code of a plan's modules: from the cache of earlier compilations, from other processes, or from here.

Owns where object code comes from, and that behind each module's lies that of the runtime's own native functions, so
that starting a plan compiles nothing; how LLVM makes it is `jit`'s. A cached object is trusted like the program itself,
so its folder belongs to the user alone, and damage is found by a digest before a byte is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llvmlite

from ... import __version__
from ...errors import InternalError
from ...files import keep
from ...runtime.handoff import handoff_text
from ..targets.target import Target, least_target
from .jit import compile_object

MOST_CACHED = 256
_WORKER = "from parax.compiler.backend.objects import worker; worker()"


LANES_LEVEL, ALIGN = 2, 16


def compile_objects(
    modules: Mapping[str, tuple[str, Target]], opt_level: int, jobs: int, cache: Path | None
) -> dict[str, bytes]:
    """Object code of every module, and behind it that of runtime/handoff.py.

    Args:
        modules: name → (LLVM assembly, the target it is for).
        jobs: how many may be compiled at once. LLVM runs under one lock, so all but one take processes of their own.
        cache: folder of earlier results, or None to neither read nor write any.

    Raises:
        InternalError: LLVM rejects a module.
    """
    lanes = {arch: lanes_object(arch, cache) for arch in {target.arch for _, target in modules.values()}}
    keys = {name: _key(text, target, opt_level) for name, (text, target) in modules.items()}
    found = {name: data for name, key in keys.items() if cache and (data := _read(cache, key))}
    missing = [name for name in modules if name not in found]
    elsewhere = missing[1:] if jobs > 1 else []
    with ThreadPoolExecutor(max(1, jobs - 1)) as pool:
        pending = {name: pool.submit(_in_a_process, *modules[name], opt_level) for name in elsewhere}
        made = {name: compile_object(*modules[name], opt_level) for name in missing if name not in pending}
        made |= {name: future.result() for name, future in pending.items()}
    if cache:
        for name, data in made.items():
            _write(cache, keys[name], data)
    return {
        name: _side_by_side(found[name] if name in found else made[name], lanes[target.arch])
        for name, (_, target) in modules.items()
    }


def lanes_object(arch: str, cache: Path | None) -> bytes:
    """The runtime's native functions for an architecture: made once in a process, where there is a cache on a machine.

    For the least target there is: they wait and hand on, and compute nothing.
    """
    if arch not in _MADE:
        text, target = handoff_text(arch), least_target(arch)
        key = _key(text, target, LANES_LEVEL)
        data = _read(cache, key) if cache else None
        if data is None:
            data = compile_object(text, target, LANES_LEVEL)
            if cache:
                _write(cache, key, data)
        _MADE[arch] = data
    return _MADE[arch]


_MADE: dict[str, bytes] = {}


def _side_by_side(first: bytes, second: bytes) -> bytes:
    """Two objects in one file; see runtime/elf.py."""
    return first + bytes(-len(first) % ALIGN) + second


def _in_a_process(text: str, target: Target, opt_level: int) -> bytes:
    request = json.dumps({"text": text, "target": asdict(target), "opt_level": opt_level})
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-c", _WORKER], input=request.encode(), capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": path}, cwd=os.sep,
    )  # fmt: skip
    if done.returncode:
        raise InternalError(
            "LLVM failed in a process of its own", where=target.name, found=done.stderr.decode()[-2000:]
        )
    return done.stdout


def worker() -> None:
    """The other process: a module on stdin, its object code on stdout."""
    request = json.load(sys.stdin)
    fields: dict[str, Any] = request["target"]
    fields["features"] = tuple(fields["features"])
    sys.stdout.buffer.write(compile_object(request["text"], Target(**fields), request["opt_level"]))


def _key(text: str, target: Target, opt_level: int) -> str:
    """A name for everything that the object code depends on."""
    circumstances = json.dumps([__version__, llvmlite.__version__, asdict(target), opt_level])
    return hashlib.sha256(f"{circumstances}\n{text}".encode()).hexdigest()


def _read(cache: Path, key: str) -> bytes | None:
    """An earlier result; None where there is none, or a damaged one."""
    try:
        content = (cache / "objects" / key).read_bytes()
    except OSError:
        return None
    digest, data = content[:32], content[32:]
    return data if hashlib.sha256(data).digest() == digest else None


def _write(cache: Path, key: str, data: bytes) -> None:
    """Keep a result, whole or not at all, and let the oldest go. A cache that cannot be written is no error."""
    folder = cache / "objects"
    if not keep(folder / key, hashlib.sha256(data).digest() + data):
        return
    with suppress(OSError):  # another compiler tidies up at the same time
        if len(os.listdir(folder)) <= MOST_CACHED * 9 // 8:  # to ask when each was written takes longer
            return
        kept = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in kept[MOST_CACHED:]:
            file.unlink(missing_ok=True)
