"""Named targets, and features that one may have besides those of its level."""

from __future__ import annotations

import pytest

from parax.compiler.backend import host
from parax.compiler.targets.target import EXTENSIONS, TARGETS, extended, named_target
from parax.errors import UsageError


@pytest.mark.parametrize("name", TARGETS)
def test_a_portable_target_is_found_by_its_name(name: str) -> None:
    assert named_target(name) is TARGETS[name]


def test_features_behind_a_name_are_added_to_the_target() -> None:
    found, plain = named_target("x86-64-v4+avx512bf16"), TARGETS["x86-64-v4"]
    assert found.name == "x86-64-v4+avx512bf16" and found.features == (*plain.features, "avx512bf16")
    assert found.core is plain.core and found.cpu == plain.cpu, "the CPU that is described has not changed"
    assert not found.supported_by(set(plain.features)) and found.supported_by(set(found.features))
    assert extended(found, ["avx512bf16"]) is found, "what it has already is no new target"


@pytest.mark.parametrize("name", ["x86-64-v9", "x86-64-v3+avx512bf16", "x86-64-v4+avx512", "x86-64-v4+", "native+avx2"])
def test_what_no_target_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        named_target(name)
    assert name in str(raised.value)


def test_native_code_uses_an_extension_only_where_it_is_asked_for_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for has in (True, False):
        there = frozenset({*TARGETS["x86-64-v4"].features, *(EXTENSIONS if has else ())})
        monkeypatch.setattr(host, "host_features", lambda there=there: there)
        host._best_here.cache_clear()
        plain, asked = host.resolve_target("native"), host.resolve_target("native", frozenset(EXTENSIONS))
        host._best_here.cache_clear()
        assert plain.name == "x86-64-v4" and not set(EXTENSIONS) & set(plain.features)
        assert asked.name == "+".join(["x86-64-v4", *(sorted(EXTENSIONS) if has else ())])
        assert asked.tune == plain.tune


def test_parax_target_says_what_native_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAX_TARGET", "x86-64-v2")
    everything = frozenset(EXTENSIONS)
    assert host.resolve_target("native", everything) is TARGETS["x86-64-v2"], "with nothing besides"
    assert host.resolve_target("x86-64-v3") is TARGETS["x86-64-v3"]
    for here, found in (("x86-64-v4", "x86-64-v2"), ("aarch64", "aarch64")):
        monkeypatch.setattr(host, "host_features", lambda here=here: frozenset(TARGETS[here].features))
        host._best_here.cache_clear()
        assert host.running_target(everything).name == found, "what runs here is measured, whatever is compiled for"
    host._best_here.cache_clear()
    monkeypatch.setenv("PARAX_TARGET", "x86-64-v9")
    with pytest.raises(UsageError, match=r"PARAX_TARGET.*x86-64-v4.*x86-64-v9"):
        host.resolve_target("native")
