"""`parax doctor`: the machine as parax sees it, versions, environment variables, and what to do about what is amiss."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__, env
from ...errors import INSTALL_COMPILER, what_the_compiler_lacks
from ...runtime.cpu import cpu_flags, cpu_name, host_arch
from .console import Console, Table, size

if TYPE_CHECKING:
    from ...runtime.topology import Topology

NAME = "doctor"
_FAMILIES, _OTHERS = ("avx", "amx", "asimd", "sve"), frozenset({"fma", "f16c", "sse4_2", "i8mm", "bf16"})
HELP = "describe this machine and installation, and say what is amiss"
PACKAGES = {  # what parax uses or is compared with → what pip installs it by
    "numpy": "numpy",
    **dict.fromkeys(("llvmlite", "onnx", "networkx", "rich"), "'parax[compiler]'"),
    **dict.fromkeys(("onnxruntime", "openvino"), "'parax[bench]'"),
    "ml_dtypes": "ml_dtypes",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("--measure", action="store_true",
                        help="measure this machine now, in a few seconds, and keep what choices rest on")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Show it; the exit code."""
    from ...runtime.topology import machine

    found = machine()
    facts = machine_facts(found) | limits(found, args.measure)
    versions = {"parax": __version__, "python": platform.python_version(), **package_versions()}
    variables = [
        [name, os.environ.get(name), "unset" if v.default is None else v.default, v.doc]
        for name, v in env.VARIABLES.items()
    ]
    advice = what_is_amiss(found)
    document = {
        "machine": facts, "versions": versions, "environment": {name: text for name, text, *_ in variables},
        "advice": advice,
    }  # fmt: skip
    console.result(
        document,
        Table("machine", ("", ""), list(facts.items())),
        Table("versions", ("", ""), [
            [name, version or f"not installed: pip install {PACKAGES[name]}"] for name, version in versions.items()
        ]),
        Table("environment", ("variable", "set to", "default", "what it does"), variables),
        Table("advice", ("",), [[line] for line in advice or ["nothing is amiss"]]),
    )  # fmt: skip
    return 0


def machine_facts(found: Topology) -> dict[str, str]:
    """CPU, instruction sets, cores, caches and quota, in words."""
    caches = [f"L{c.level} {size(c.nbytes)} for {cores(len(c.shared_by))}" for c in found.caches]
    return {
        "cpu": cpu_name(),
        "native target": native_target(),
        "portable targets": portable_targets(),
        "vector instructions": " ".join(sorted(vector_features())) or "none known",
        "usable cores": " ".join(str(core.number) for core in found.cores),
        "default cores": " ".join(map(str, found.default_cores())),
        "NUMA nodes": str(len({core.node for core in found.cores})),
        "cpu quota": "none" if found.quota is None else f"{found.quota:.2f} cores",
        "caches": ", ".join(caches) or "unknown",
        "memory": size(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        "kernel": f"{platform.system()} {platform.release()}",
        "cache folder": str(env.cache_dir()),
    }


def native_target() -> str:
    """The best code that this CPU runs, and the CPU that it is tuned for, which LLVM knows by its name."""
    if what_the_compiler_lacks():
        from ...runtime.native import host_features
        from ..targets.target import best_target

        chosen, best = env.read("PARAX_TARGET"), best_target(host_features())
        name = chosen if chosen != env.NATIVE else best.name if best else "none"
        return f"{name}; which CPU it is tuned for, the compiler knows"
    from ..backend.host import resolve_target

    native = resolve_target("native")
    return f"{native.name}, tuned for {native.tune}"


def portable_targets() -> str:
    """What `--target` takes, and which of it runs here."""
    from ...runtime.native import host_features
    from ..targets.target import TARGETS

    here = [t.name for t in TARGETS.values() if t.supported_by(host_features())]
    elsewhere = [name for name in TARGETS if name not in here]
    return f"{', '.join(here) or 'none'}; not for this CPU: {', '.join(elsewhere) or 'none'}"


def limits(found: Topology, measure: bool) -> dict[str, str]:
    """What choices rest on: peak, bandwidths and meetings, measured now or before.

    Raises:
        CompilerMissing: it is to be measured, and only the compiler can.
    """
    if not measure and what_the_compiler_lacks():
        return {"peak, bandwidth": "not available: the compiler measures them"}
    from ..backend.calibration import running_machine

    where = found.default_cores()
    known = running_machine(env.cache_dir(), where, measure=False, again=measure)
    if known is None:
        return {"peak, bandwidth": "not measured yet: parax doctor --measure, or the first compilation"}
    caches = f"{known.l2_bandwidth_per_core / 1e9:.0f} GB/s from L2, {known.l3_bandwidth_per_core / 1e9:.0f} from L3"
    facts = {
        "f32 peak": f"{known.flops_per_core / 1e9:.0f} GFLOP/s a core",
        "memory bandwidth": f"{known.bandwidth_per_core / 1e9:.1f} GB/s a core, {known.bandwidth / 1e9:.1f} on "
                            f"{cores(len(where))} together",
        "cache bandwidth": f"{caches} a core",
    }  # fmt: skip
    if len(where) > 1:
        facts["cores meet in"] = f"{known.barrier_seconds * 1e6:.2f} µs"
    return facts


def package_versions(names: Iterable[str] = PACKAGES) -> dict[str, str | None]:
    """Version of each package; None where it is not installed."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def what_is_amiss(found: Topology) -> list[str]:
    """Advice, one line each; empty when there is none to give."""
    advice = [f"{name} is not a variable of parax: a spelling mistake?" for name in env.unknown()]
    if lacking := what_the_compiler_lacks():
        advice.append(f"{lacking}: plans run here, no model is compiled; {INSTALL_COMPILER}")
    features = vector_features()
    if host_arch() == "x86_64" and not {"avx2", "fma"} <= features:
        advice.append("no AVX2 and FMA: the portable kernels are several times slower")
    if found.quota is not None and found.quota < len(found.default_cores()):
        advice.append(f"the control group grants {found.quota:.2f} cores: latencies will be uneven")
    files = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    governors = {file.read_text().strip() for file in files}
    if governors - {"performance"}:
        advice.append(f"frequency governor {', '.join(sorted(governors))}: set performance before measuring")
    return advice


def cores(n: int) -> str:
    """`1 core`, `2 cores`."""
    return f"{n} core{'' if n == 1 else 's'}"


def vector_features() -> set[str]:
    """The vector instruction sets that kernels can use, in Linux' spelling."""
    return {flag for flag in cpu_flags() if flag.startswith(_FAMILIES) or flag in _OTHERS}
