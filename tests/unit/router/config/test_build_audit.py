"""Entity audit: values, and errors with their lines."""

import pytest

from sluice.router.config.load import load_text
from tests.unit.router.config.sections import LONG, errors, section

KIND = f"{LONG}audit"


def audits(*sections):
    return load_text("x.conf", "".join(sections)).of_type("audit")


def test_attributes_of_audit_are_read():
    (found,) = audits(section("audit", "name: a", "path: /log", "maxSize: 65536", "keep: 3", "onFull: refuse"))
    assert (found.name, found.identity, found.named) == ("a", "audit/a", True)
    assert (found.output, found.path, found.max_size, found.keep) == ("file", "/log", 65536, 3)
    assert found.refuses


def test_audit_without_name_is_called_after_its_type():
    (found,) = audits(section("audit", "output: syslog"))
    assert (found.name, found.identity, found.named, found.path) == ("audit", "audit/audit", False, None)
    assert not found.refuses


@pytest.mark.parametrize(
    ("lines", "line", "text"),
    [
        (("output: file",), 1, "output file needs a path"),
        (("output: syslog", "path: /log"), 3, "path is only for output file, not syslog"),
    ],
)
def test_path_must_fit_output(lines, line, text):
    assert errors(section("audit", *lines)) == [(line, f"{KIND}: {text}")]


def test_path_with_nul_is_no_path():
    text = '[\n["audit", {"path": "a\\u0000b"}]\n]'
    assert errors(text, "x.json") == [(2, f"{KIND}: output file needs a path")]


def test_audits_cannot_share_a_file():
    first = section("audit", "name: a", "path: /log")
    found = errors(first + section("audit", "name: b", "path: /log"))
    assert found == [(7, f"{KIND}: '/log' is already the file of 'a'")]
    other = section("audit", "name: b", "path: /other")
    assert [each.name for each in audits(first, other, section("audit", "name: c", "output: syslog"))] == [
        "a",
        "b",
        "c",
    ]
