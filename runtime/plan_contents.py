"""What is in a plan.bin: built, written, read, verified. Knows neither LLVM nor how a plan is run.

Members: manifest.json, code/<target>.o, weights.bin, graph.txt, stored and aligned (see container.py). The archive's
comment carries the SHA-256 of the manifest, the manifest those of all other members, so a byte that matters cannot
change unseen. Reading checks the manifest and a fast checksum of the weights (checksums.py; their SHA-256 is left to
`verify="full"`). The SHA-256 of object code is checked before it is linked, and that it was compiled with this manifest
(interface.py) before it runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CorruptPlan, InternalError, UsageError, reported
from .checksums import RowSums
from .container import WEIGHTS, Bytes, Container
from .interface import check_unlinked, interface_digests, plain
from .manifest import FORMAT, Manifest, Target, TensorSpec
from .manifest_reader import ManifestReader
from .memory import aligned_view

MANIFEST, GRAPH = "manifest.json", "graph.txt"
_COMMENT = b"parax plan; manifest sha256 "
_MAX_MANIFEST_NBYTES = 256 << 20
P = TypeVar("P", bound="PlanContents")


class PlanContents:
    """A compiled model: its manifest, object code per target, weights, and the graph's text.

    Attributes:
        manifest: the checked manifest.
        weights: read-only bytes on a 64-byte boundary (mapped from the file where the plan was loaded).
        path: the file it was loaded from, or None.
    """

    def __init__(self, raw: dict[str, Any], members: Mapping[str, Bytes], path: Path | None = None) -> None:
        """Check the manifest and that its members are there. Use `build` or `load`.

        Raises:
            CorruptPlan, IncompatiblePlan: see ManifestReader.read.
        """
        self.manifest: Manifest = ManifestReader(raw).read()
        self.path = path
        self._raw = raw
        self._members = members
        for name in (*(t.code for t in self.manifest.targets), *([self.manifest.graph] if self.manifest.graph else [])):
            self._member(name)
        self.weights: memoryview = aligned_view(self._member(WEIGHTS))
        if len(self.weights) != self.manifest.weights.size:
            expected, found = self.manifest.weights.size, len(self.weights)
            raise CorruptPlan("wrong size", where=self._where(WEIGHTS), expected=expected, found=found)
        self.lock = threading.Lock()  # guards `loaded`
        self.loaded: Any = None  # the machine code in memory, shared by all sessions: native.py's

    @classmethod
    def build(
        cls: type[P], manifest: Mapping[str, Any], code: Mapping[str, bytes], weights: Any, graph: str = ""
    ) -> P:
        """A plan from the compiler's results.

        Args:
            manifest: JSON values; format, weights, graph, and every target's code and digest are filled in here.
            code: relocatable object per target name.
            weights: one contiguous buffer.
            graph: the compiled graph's text.

        Raises:
            InternalError: the manifest breaks the format.
        """
        raw = json.loads(json.dumps(dict(manifest), default=plain))
        view = memoryview(weights).cast("B") if memoryview(weights).nbytes else memoryview(b"")
        members: dict[str, Bytes] = {WEIGHTS: view, GRAPH: graph.encode()}
        for target in raw.get("targets", []):
            target["code"] = f"code/{target['name']}.o"
            target["digest"] = _sha256(code[target["name"]])
            members[target["code"]] = code[target["name"]]
        raw["format"] = FORMAT
        raw["weights"] = {"size": len(view), "digest": _sha256(view), "checksum": _sha256(RowSums(view).result())}
        raw["graph"], raw["graph_digest"] = GRAPH, _sha256(members[GRAPH])
        try:
            return cls(raw, members)
        except CorruptPlan as error:
            raise InternalError("the compiler wrote a manifest that breaks its own format", found=error) from error

    def with_provenance(self: P, **more: Any) -> P:
        """The same plan, whose manifest also says how it came about; its code does not depend on that.

        Args:
            more: JSON values under their names, in the place of what is there.

        Raises:
            InternalError: a value that JSON does not have.
        """
        raw = self.json()
        try:
            raw["provenance"] |= json.loads(json.dumps(more, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InternalError("no JSON for the provenance", found=error) from error
        return type(self)(raw, self._members, self.path)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.manifest.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors a run takes; state is none of them."""
        return self.manifest.signature[0]

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors a run gives."""
        return self.manifest.signature[1]

    @property
    def graph(self) -> str:
        """The compiled graph's text.

        Raises:
            CorruptPlan: its digest is wrong, or it is no text.
        """
        if self.manifest.graph is None:
            return ""
        try:
            return str(self._checked(self.manifest.graph, self.manifest.graph_digest), "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptPlan("not text", where=self._where(self.manifest.graph), found=error) from error

    def json(self) -> dict[str, Any]:
        """The manifest as JSON values (a copy)."""
        copy: dict[str, Any] = json.loads(json.dumps(self._raw))
        return copy

    def code(self, target: Target) -> Bytes:
        """The object code of a target, once its digest is right.

        Raises:
            CorruptPlan: it is not.
        """
        return self._checked(target.code, target.digest)

    def interface(self, target: Target) -> bytes:
        """What a target's code must say of the manifest; see interface.py.

        Raises:
            CorruptPlan: values nested too deeply.
        """
        return interface_digests(self._raw, target.name, len(self.weights))

    def verify(self) -> None:
        """Check the SHA-256 of all members against the manifest, and the manifest against all code.

        Raises:
            CorruptPlan: a member is not what the manifest promises.
        """
        self._checked(WEIGHTS, self.manifest.weights.digest)
        for target in self.manifest.targets:
            check_unlinked(bytes(self.code(target)), self.interface(target), self._where(target.code))
        _ = self.graph

    def check_weights(self, found: RowSums) -> None:
        """Check the weights' sums against the manifest's fast checksum.

        Raises:
            CorruptPlan: they are not what the manifest promises.
        """
        if _sha256(found.result()) != self.manifest.weights.checksum:
            raise CorruptPlan("wrong checksum", where=self._where(WEIGHTS), hint="copy or compile the plan again")

    @reported
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write plan.bin: whole or not at all.

        Raises:
            UsageError: the place cannot be written.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise UsageError("not a path", where="save", expected="text or a Path", found=repr(path)[:200])
        from .container_writer import write_container  # here: zipfile costs imports that running a plan never needs

        manifest = json.dumps(self._raw, separators=(",", ":")).encode()
        members: list[tuple[str, Bytes]] = [(MANIFEST, manifest)]
        members += [(t.code, self._member(t.code)) for t in self.manifest.targets]
        members.append((WEIGHTS, self.weights))
        if self.manifest.graph:
            members.append((self.manifest.graph, self._member(self.manifest.graph)))
        write_container(Path(path), members, _COMMENT + _sha256(manifest).encode())

    def _where(self, member: str) -> str:
        return f"{self.path or self.manifest.name or 'plan'}:{member}"

    def _member(self, name: str) -> Bytes:
        try:
            return self._members[name]
        except KeyError:
            raise CorruptPlan("member missing", where=self._where(name)) from None

    def _checked(self, name: str, digest: str) -> Bytes:
        data = self._member(name)
        if _sha256(data) != digest:
            raise CorruptPlan("wrong digest", where=self._where(name), hint="copy or compile the plan again")
        return data


def raw_manifest(container: Container) -> Any:
    """The JSON values of a container's manifest, which is the one that the archive's comment promises.

    Raises:
        CorruptPlan: it is not, or there is none, or it is not JSON.
    """
    where = manifest_place(container)
    data = container.members.get(MANIFEST)
    if data is None or not container.comment.startswith(_COMMENT):
        raise CorruptPlan("not a plan", where=container.where, expected="a file that parax wrote")
    if len(data) > _MAX_MANIFEST_NBYTES:
        raise CorruptPlan("manifest too large", where=where, expected=f"≤ {_MAX_MANIFEST_NBYTES}", found=len(data))
    if container.comment != _COMMENT + _sha256(data).encode():
        raise CorruptPlan("wrong digest", where=where, hint="copy or compile the plan again")
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise CorruptPlan("not JSON", where=where, found=error) from error


def manifest_place(container: Container) -> str:
    """Where a container's manifest is, for errors."""
    return f"{container.where}:{MANIFEST}"


def _sha256(data: Bytes) -> str:
    return hashlib.sha256(data).hexdigest()
