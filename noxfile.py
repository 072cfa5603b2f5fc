"""The tests on every Python that is promised, and on the oldest dependencies: `nox`, or `nox -s "tests-3.12"`.

A Python that this machine lacks is skipped, and nox says so; what no machine has run is not to be promised in
pyproject.toml.
"""

from __future__ import annotations

import re

import nox

nox.options.default_venv_backend = "venv"
PROJECT = nox.project.load_toml("pyproject.toml")["project"]
PYTHONS = nox.project.python_versions({"project": PROJECT})  # the classifiers'
LOWEST = re.compile(r"^([A-Za-z0-9_.-]+)>=([0-9.]+)")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The newest dependencies: README's second command."""
    session.install(".[test]")
    session.run("pytest", "-q", "-n", "auto", *session.posargs)


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """The lowest versions that pyproject.toml allows of everything that it names."""
    session.install(".[test]", *(f"{name}=={version}.*" for name, version in lowest_versions().items()))
    session.run("pytest", "-q", "-n", "auto", *session.posargs)


def lowest_versions() -> dict[str, str]:
    """Name → version, of what running, compiling and testing need."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(line for extra in ("compiler", "report", "test") for line in extras[extra])]
    found = [LOWEST.match(line.split(";")[0]) for line in wanted]
    return {each[1]: each[2] if "." in each[2] else f"{each[2]}.0" for each in found if each}
