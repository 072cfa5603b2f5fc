"""Maps the top-level folders to packages: parax/ → parax, compiler/ → parax.compiler, runtime/ → parax.runtime.

pyproject.toml holds everything else. setuptools' own discovery cannot add a prefix, hence these lines.
"""

from setuptools import find_packages, setup

ROOMS = {"parax": "parax", "parax.compiler": "compiler", "parax.runtime": "runtime"}


def packages() -> list[str]:
    """Every package of the three rooms, by its installed name."""
    return [f"{root}.{sub}".rstrip(".") for root, folder in ROOMS.items() for sub in ("", *find_packages(folder))]


setup(packages=packages(), package_dir=ROOMS)
