"""Report of runtime dependencies: what it follows, and the stored table."""

import re
import tomllib
from importlib.metadata import distribution

import pytest

from scripts.dependency_report import ROOT, licence, runtime_closure, size, split_requirement


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("aiohttp>=3.14", ("aiohttp", frozenset())),
        ("PyJWT[crypto]>=2.10", ("pyjwt", frozenset({"crypto"}))),
        ("typing_extensions (>=4)", ("typing-extensions", frozenset())),
    ],
)
def test_requirement_is_split_into_name_and_extras(requirement, expected):
    assert split_requirement(requirement) == expected


def test_requirements_of_wanted_extras_only_are_followed():
    assert runtime_closure(["PyJWT[crypto]"]).items() >= {"pyjwt": "", "cryptography": "pyjwt"}.items()
    assert "cryptography" not in runtime_closure(["PyJWT"])


def test_sizes_and_licences_are_those_of_installed_files():
    assert size(distribution("orjson")) > 100_000
    assert licence(distribution("orjson")) == "MPL-2.0 AND (Apache-2.0 OR MIT)"


def test_stored_table_has_all_runtime_dependencies():
    direct = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    page = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text()
    listed = re.findall(r"^\| ([a-z0-9-]+) \| [0-9][^|]* \| [^|]* \| [0-9.]+ \|", page, re.MULTILINE)
    assert set(runtime_closure(direct)) <= set(listed)
