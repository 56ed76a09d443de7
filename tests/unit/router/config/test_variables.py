"""Environment variables in values: only in files that ask for them, with defaults, escapes and errors."""

from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.config.diff import diff
from sluice.router.config.entities import Configuration
from sluice.router.config.load import load_text
from sluice.router.config.render import render
from tests.unit.router.config.sections import errors, section

ASKED = section("router", "id: R.${HOST_NAME}", "environmentVariables: yes")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_NAME", "one")
    monkeypatch.setenv("PORT", "1234")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("ABSENT", raising=False)


def loaded(text: str) -> Configuration:
    return load_text("x.conf", text)


def test_variable_is_replaced_only_on_request() -> None:
    assert loaded(ASKED).router.id == "R.one"
    assert loaded(section("router", "id: R.${HOST_NAME}")).router.id == "R.${HOST_NAME}"


@pytest.mark.parametrize(
    ("written", "prefix"),
    [
        ("a/${HOST_NAME}/${PORT}", "a/one/1234"),
        ("a${ABSENT:-b.c}", "ab.c"),
        ("a${EMPTY:-b}", "ab"),
        ("a${EMPTY}", "a"),
        ("a${HOST_NAME:-b}", "aone"),
        ("a${ABSENT:-}", "a"),
        ("a$${HOST_NAME}", "a${HOST_NAME}"),
        ("a$$${HOST_NAME}", "a$${HOST_NAME}"),
        ("a$HOST_NAME$$", "a$HOST_NAME$$"),
        ("a${user}", "a${user}"),
        ("a${HOST_NAME", "a${HOST_NAME"),
    ],
)
def test_value_is_expanded(written: str, prefix: str) -> None:
    assert loaded(ASKED + section("address", f"prefix: {written}")).addresses[0].prefix == prefix


def test_expanded_value_has_type_of_attribute() -> None:
    text = ASKED + section("listener", "host: localhost", "port: ${PORT}", "linkCapacity: ${PORT}")
    assert (loaded(text).listeners[0].port, loaded(text).listeners[0].link_capacity) == (1234, 1234)
    written = [["router", {"environmentVariables": True}], ["listener", {"host": "h", "linkCapacity": "${PORT}"}]]
    assert load_text("x.json", json_codec.dispatch_text(written)).listeners[0].link_capacity == 1234


def test_missing_variable_is_error_with_line() -> None:
    text = ASKED + section("address", "prefix: ${ABSENT}", "distribution: ${ABSENT:-closest}")
    ((line, message),) = [each for each in errors(text) if "ABSENT" in each[1]]
    assert line == 6
    assert message.startswith("the environment variable 'ABSENT' in attribute 'prefix' is not set")


def test_policy_keeps_user_and_gets_variables(tmp_path: Path) -> None:
    group = {"users": "*", "remoteHosts": "*", "sources": "${HOST_NAME}/${user}"}
    vhost = ["vhost", {"hostname": "${HOST_NAME}", "groups": {"g": group}}]
    (tmp_path / "a.json").write_text(json_codec.dispatch_text([vhost]))
    (found,) = loaded(ASKED + section("policy", f"policyDir: {tmp_path}")).vhosts
    assert (found.hostname, found.groups[0].sources) == ("one", ("one/${user}",))


def test_written_file_has_values_and_escapes() -> None:
    before = loaded(ASKED + section("address", "prefix: $${HOST_NAME}/${PORT}"))
    text = render(before)
    assert "prefix: $${HOST_NAME}/1234" in text
    assert diff(before, loaded(text)).changes == ()


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("text", ["${PORT}", "$${PORT}", "a${MISSING:-b}", "$$$"])
def test_text_of_management_that_looks_like_a_variable_is_none_in_the_written_file(text: str, json: bool) -> None:
    """Nobody who may create entities, but may not name secrets, reads variables of the next start by their values."""
    written = text.replace("${", "$${")
    before = loaded(ASKED + section("tap", f"name: {written}\n pattern: p{written}\n address: a{written}"))
    (tap,) = before.taps
    assert (tap.name, tap.pattern, tap.address) == (text, f"p{text}", f"a{text}")
    again = load_text("file.json" if json else "file.conf", render(before, json=json), files=False)
    assert diff(before, again).changes == ()
    assert again.taps[0].name == text
