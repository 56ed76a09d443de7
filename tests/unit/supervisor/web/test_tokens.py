"""Access to metrics and to details of health checks, by certificate or token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import ProcessLog
from sluice.supervisor.web.tokens import MetricsTokens


def known(log: ProcessLog, attributes: str, authorization: str | None = None, *, certified: bool = False) -> bool:
    """Return whether a listener with these attributes shows details to a client."""
    listener = load_text("x.conf", f"listener {{\nport: 0\nhttp: yes\n{attributes}\n}}\n").listeners[0]
    headers = {} if authorization is None else {"Authorization": authorization}

    async def scenario() -> bool:
        return await MetricsTokens(asyncio.get_running_loop(), log).known(listener, headers, certified)

    return asyncio.run(scenario())


def test_listener_without_authentication_shows_details(log: ProcessLog) -> None:
    assert known(log, "")


def test_listener_with_login_but_no_token_shows_details_to_certified_clients_only(log: ProcessLog) -> None:
    assert not known(log, "authenticatePeer: yes")
    assert not known(log, "authenticatePeer: yes", "Bearer x")
    assert known(log, "authenticatePeer: yes", certified=True)


@pytest.mark.parametrize(
    ("authorization", "accepted"),
    [
        ("Bearer secret", True),
        ("bearer  secret ", True),
        (None, False),
        ("", False),
        ("Bearer", False),
        ("Bearer ", False),
        ("Bearer secretx", False),
        ("Bearer Secret", False),
        ("Basic secret", False),
        ("secret", False),
        ("Bearer s\udcffcret", False),
    ],
)
def test_token_of_listener_is_required(log: ProcessLog, authorization: str | None, accepted: bool) -> None:
    assert known(log, "metricsToken: pass:secret", authorization) is accepted


def test_token_is_read_from_file_for_each_request(log: ProcessLog, tmp_path: Path) -> None:
    path = tmp_path / "token"
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        assert known(log, f"metricsToken: file:{path}", f"Bearer {token}")
    assert not known(log, f"metricsToken: file:{path}", "Bearer one")


@pytest.mark.parametrize("content", [None, ""])
def test_unreadable_or_empty_token_accepts_nobody(log: ProcessLog, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    for token in ("", " ", f"file:{path}"):
        assert not known(log, f"metricsToken: file:{path}", f"Bearer {token}")


def test_unreadable_token_is_logged(log: ProcessLog, tmp_path: Path) -> None:
    known(log, f"name: web\nmetricsToken: file:{tmp_path}/none", "Bearer x")
    (entry,) = log.recent()
    assert entry.text.startswith("metricsToken of listener web cannot be read, so no token is accepted")
