"""Agreement between the source tree and the files that control building and installing."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [name for name in ("router", "workers", "supervisor", "pipeline") if (ROOT / name).is_dir()]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """`[project]` table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def distribution(requirement: str) -> str:
    """Return the normalised name in a requirement such as `pyzmq>=26` or `name[extra]`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


@pytest.mark.parametrize("package", PACKAGES)
def test_code_folders_are_packages(package: str) -> None:
    """A folder without __init__.py works in a checkout but is missing from the wheel."""
    code = [path for suffix in ("*.py", "*.pyx") for path in (ROOT / package).rglob(suffix)]
    assert [path.parent for path in code if not (path.parent / "__init__.py").exists()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_listed_in_tree_page(package: str) -> None:
    page = (ROOT / "docs" / "internals" / "tree.md").read_text("utf-8")
    packages = [path.parent.relative_to(ROOT) for path in (ROOT / package).rglob("__init__.py")]
    named = {"router", "router/cli/stat"}  # in the text of the page, outside its table
    assert [str(path) for path in packages if f"| `{path}` |" not in page and str(path) not in named] == []


@pytest.mark.starts
def test_testing_modules_are_not_installed(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "SLUICE_MODULES": "none"})
    installed = list(tmp_path.rglob("*"))
    assert tmp_path / "sluice" / "router" / "amqp" / "sasl.py" in installed
    assert [path for path in installed if path.stem == "testing"] == []


def test_command_entry_points_exist(project: dict[str, Any]) -> None:
    for target in project["scripts"].values():
        module, function = target.split(":")
        source = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        assert f"def {function}(" in source.read_text("utf-8"), target


def test_dispatch_tools_are_installed(project: dict[str, Any]) -> None:
    assert {"sluice", "qdrouterd", "qdstat", "qdmanage"} <= set(project["scripts"])


def test_dependencies_have_a_reason_and_a_tested_version(project: dict[str, Any]) -> None:
    wanted = {*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)}
    names = {distribution(one) for one in wanted} - {project["name"]}
    pinned = {
        distribution(line)
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    }
    reasons = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text("utf-8")
    assert names - pinned == set()
    assert {name for name in names if f"**{name}**" not in reasons} == set()
