"""Access to the console, and its behaviour when the router stops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.network import url, web
from tests.console.test_pages import row, rows
from tests.peer.logins import write_users
from tests.peer.peer import AmqpPeer
from tests.peer.pki import pki
from tests.system.networks import interior, ports
from tests.system.router import SETTINGS, RouterProcess, listener, poll

pytestmark = pytest.mark.long

HOSTILE = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RouterProcess]:
    """Router whose console requires a password; `guest` may connect but has no rights."""
    write_users(tmp_path / "users", alice="wonderland", guest="guest")
    sections: list[Any] = [
        listener(), web(saslUsers="people", authenticatePeer=True),
        ("saslUsers", {"name": "people", "file": tmp_path / "users"}), *SETTINGS,
    ]  # fmt: skip
    router = RouterProcess(tmp_path, sections)
    router.start()
    yield router
    router.kill()


def log_in(page: Any, user: str, password: str) -> None:
    """Fill in and send the login form."""
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_login_with_wrong_password_is_refused(page: Any, guarded: RouterProcess) -> None:
    page.goto(url(guarded, "connections"))
    log_in(page, "alice", "a guess")
    page.get_by_role("alert").get_by_text("refused this name and password").wait_for()
    log_in(page, "alice", "wonderland")
    row(page, "Connections", "alice").wait_for()
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "wonderland" not in kept
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Password").wait_for()


def test_login_outlives_a_reload_of_the_page_until_its_end(page: Any, guarded: RouterProcess) -> None:
    session = "JSON.parse(sessionStorage['sluice.session'])"
    page.goto(url(guarded, "connections"))
    log_in(page, "alice", "wonderland")
    row(page, "Connections", "alice").wait_for()
    for _ in range(2):
        page.reload()
        row(page, "Connections", "alice").wait_for()
    page.evaluate(f"sessionStorage['sluice.session'] = JSON.stringify({{...{session}, until: Date.now() - 1}})")
    page.reload()
    page.get_by_label("Password").wait_for()
    log_in(page, "alice", "wonderland")
    row(page, "Connections", "alice").wait_for()
    write_users(guarded.config.parent / "users", alice="another", guest="guest")

    def session_has_ended() -> bool:
        page.reload()
        page.locator("h1").wait_for()
        return bool(page.get_by_text("The session has ended: log in again").count())

    poll(session_has_ended, "the router has read the new password", 30)
    log_in(page, "alice", "another")
    row(page, "Connections", "alice").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.reload()
    page.get_by_label("Password").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_login_is_repeated_after_a_closed_connection(page: Any, guarded: RouterProcess) -> None:
    """The console logs in again after the router has closed its connection."""
    page.goto(url(guarded, "connections"))
    log_in(page, "alice", "wonderland")
    row(page, "Connections", "alice").click()
    page.get_by_role("button", name="Close …").click()
    page.get_by_role("dialog").get_by_role("button", name="Close the connection").click()
    guarded.wait_log("Connection force-closed")
    guarded.wait_log("Connection Opened.*user=alice", after=len(guarded.lines) - 1)
    row(page, "Connections", "alice").wait_for()


def test_console_over_tls_shows_connections(browser: Any, tmp_path: Path) -> None:
    """With TLS a worker serves the pages and the WebSocket."""
    made = pki(tmp_path)
    profile = {"name": "p", "certFile": made.server.certificate, "privateKeyFile": made.server.key}
    router = RouterProcess(tmp_path, [("sslProfile", profile), listener(), web(sslProfile="p", requireSsl=True)])
    router.start()
    page = browser.new_page(ignore_https_errors=True)
    try:
        page.goto(url(router, "connections").replace("http:", "https:"))
        row(page, "Connections", "TLSv1.3").wait_for()
    finally:
        page.close()
        router.kill()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[RouterProcess]:
    """Router whose ports stay the same after a restart."""
    amqp, http = ports(2)
    own = {"host": "127.0.0.1", "port": amqp}
    http_too = {"name": "web", "host": "127.0.0.1", "port": http, "http": True}
    router = RouterProcess(tmp_path, [("listener", own), ("listener", http_too), *SETTINGS])
    router.start()
    yield router
    router.kill()


def test_restarted_router_is_shown_again(page: Any, plain: RouterProcess) -> None:
    page.goto(url(plain, "connections"))
    rows(page, "Connections").first.wait_for()
    plain.kill()
    page.get_by_text("What you see is old").wait_for()
    plain.start()
    page.get_by_text("What you see is old").wait_for(state="detached", timeout=60_000)
    rows(page, "Connections").first.filter(has_text=re.compile(r"console-.*\d s")).wait_for()


def test_hostile_names_are_shown_as_text(page: Any, plain: RouterProcess) -> None:
    peer = AmqpPeer.opened(plain.port, container_id=HOSTILE)
    with peer:
        peer.sender(HOSTILE, name=HOSTILE, credit=False)
        peer.receiver(HOSTILE, 1, name=HOSTILE + "2")
        for place, table in (("addresses", "Addresses"), ("links", "Links"), ("connections", "Connections")):
            page.goto(url(plain, place))
            row(page, table, HOSTILE).click()
            page.get_by_role("complementary").get_by_text(HOSTILE, exact=True).first.wait_for()
        page.goto(url(plain, "topology"))
        page.locator("canvas").wait_for()
        page.goto(url(plain, "overview"))
        page.locator("h1").wait_for()
        page.goto(url(plain, "addresses"))
        row(page, "Addresses", HOSTILE).click()
        page.get_by_role("link", name="Explain", exact=True).last.click()
        page.get_by_text("reachable").first.wait_for()
        assert page.locator("img").count() == 1, "the sign of the console"
        assert "broken" not in page.title()


def test_policy_without_management_is_reported(page: Any, tmp_path: Path) -> None:
    nothing = {"users": "*", "remoteHosts": "*", "sources": "public", "targets": "public"}
    sections: list[Any] = [
        listener(), web(policyVhost="shop"), ("policy", {"enableVhostPolicy": True}),
        ("vhost", {"hostname": "shop", "allowUnknownUser": True, "groups": {"$default": nothing}}),
    ]  # fmt: skip
    router = RouterProcess(tmp_path, sections)
    router.start()
    try:
        page.goto(url(router))
        page.get_by_text("may not manage the router").wait_for()
    finally:
        router.kill()


def test_reader_sees_all_pages_and_changes_nothing(page: Any, tmp_path: Path) -> None:
    """A group with `management: read` sees all pages, at another router of the network, too."""
    (port,) = ports(1)
    group = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
    policy: list[Any] = [
        ("policy", {"enableVhostPolicy": True}),
        ("vhost", {"hostname": "watchers", "groups": {"all": {**group, "management": "read"}}}),
        ("vhost", {"hostname": "$default", "groups": {"all": group}}),
    ]  # fmt: skip
    routers = []
    for name, to in (("North", ()), ("South", (port,))):
        (tmp_path / name).mkdir()
        listens = port if name == "North" else None
        own = RouterProcess(tmp_path / name, [*interior(name, listens, to), web(policyVhost="watchers"), *policy])
        routers.append(own)
        own.start()
    with (
        AmqpPeer.opened(routers[0].port, container_id="somebody"),
        AmqpPeer.opened(routers[1].port, container_id="beyond"),
    ):
        for place, table, text in (
            ("overview", "Routers", "South"), ("connections", "Connections", "somebody"),
            ("connections?router=South", "Connections", "beyond"), ("vhosts", "Vhosts", "watchers"),
        ):  # fmt: skip
            page.goto(url(routers[0], place))
            row(page, table, text).wait_for()
        for place in ("topology", "addresses", "links", "workers", "log", "explain", "entities"):
            page.goto(url(routers[0], place))
            page.locator("h1").wait_for()
            assert page.get_by_role("alert").count() == 0, place
        page.goto(url(routers[0], "connections"))
        row(page, "Connections", "somebody").click()
        page.get_by_role("button", name="Close …").click()
        page.get_by_role("dialog").get_by_role("button", name="Close the connection").click()
        page.get_by_text("The management role 'read' does not include UPDATE").wait_for()
    for own in routers:
        own.kill()
