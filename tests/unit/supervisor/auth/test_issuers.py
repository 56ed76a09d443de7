"""Configured token issuers: keys from a file or a URL, and the state that management shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sluice.router.sasl.mechanism import Failure, Success
from sluice.supervisor.auth import tokens
from sluice.supervisor.auth.issuers import ConfiguredIssuer
from sluice.supervisor.auth.messages import TokenIssuer
from sluice.supervisor.auth.tokens import ALL_ALGORITHMS, MAX_JWKS, KeysError, check_token
from tests.unit.supervisor.auth.test_tokens import AUDIENCE, ISSUER, jwks, token
from tests.unit.supervisor.auth.waiting import until


def configured(**source: Any) -> ConfiguredIssuer:
    """Return an issuer whose keys come from this file or URL."""
    config = TokenIssuer(name="id", issuer=ISSUER, audiences=(AUDIENCE,), algorithms=ALL_ALGORITHMS, **source)
    return ConfiguredIssuer(config, lambda level, text: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def from_file(path: Path) -> ConfiguredIssuer:
    """Return an issuer with keys of a file, which has been read."""
    made = configured(jwks_file=str(path))
    assert made.file is not None
    made.file.look()
    return made


def test_token_is_checked_with_keys_of_file(path: Path) -> None:
    path.write_text(jwks())
    made = from_file(path)
    assert isinstance(check_token([made.issuer], token()), Success)
    assert (made.state.usable, made.state.sound, made.state.text) == (True, True, "in use")


@pytest.mark.parametrize("content", [None, "{", " " * (MAX_JWKS + 1) + jwks()], ids=["absent", "broken", "long"])
def test_issuer_without_readable_keys_is_unusable(path: Path, content: str | None) -> None:
    if content is not None:
        path.write_text(content)
    made = from_file(path)
    assert isinstance(check_token([made.issuer], token()), Failure)
    assert not made.state.usable


def test_issuer_keeps_keys_of_file_that_becomes_bad(path: Path) -> None:
    path.write_text(jwks())
    made = from_file(path)
    assert made.file is not None
    path.write_text("{")
    made.file.look()
    assert isinstance(check_token([made.issuer], token()), Success)
    assert (made.state.usable, made.state.sound) == (True, False)
    assert made.state.text != "in use", "management shows the problem"


def test_token_is_checked_with_keys_of_url(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def fetch(url: str, ca_file: str | None) -> bytes:
        asked.append((url, ca_file))
        return bytes(jwks(), "ascii")

    monkeypatch.setattr(tokens, "fetch_https", fetch)
    made = configured(jwks_url="https://id.example/keys", ca_file="/ca.pem")
    assert made.file is None
    until(lambda: made.state.text == "keys read")
    assert isinstance(check_token([made.issuer], token()), Success)
    assert asked == [("https://id.example/keys", "/ca.pem")]
    made.stop()


def test_issuer_with_failing_url_is_usable_and_shows_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails is no error of the configuration."""

    def fail(url: str, ca_file: str | None) -> bytes:
        raise KeysError("HTTP status 404")

    monkeypatch.setattr(tokens, "fetch_https", fail)
    made = configured(jwks_url="https://id.example/keys")
    until(lambda: "HTTP status 404" in made.state.text)
    assert (made.state.usable, made.state.sound) == (True, False)
    assert isinstance(check_token([made.issuer], token()), Failure)
    made.stop()
