"""Names and texts of hostile clients in the console: what a reader sees is what the client sent, and the page works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.network import url, web
from tests.console.test_pages import row
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.types import Symbol
from tests.system.router import SETTINGS, RouterProcess, listener

pytestmark = pytest.mark.long

#: Hostile text, and a part of what the console shows for it.
TEXTS = {
    "markup": ("</td><svg onload=document.title='broken'>{{7*7}}", "</td><svg onload=document.title='broken'>{{7*7}}"),
    "direction": ("orders.\u202egnp.exe", "orders.\\u202egnp.exe"),
    "isolates": ("a\u2066b\u2069\u200fc", "a\\u2066b\\u2069\\u200fc"),
    "invisible": ("adm\u200bin\ufeff\u00ad", "adm\\u200bin\\ufeff\\xad"),
    "terminal": ("\x1b[31mred\x07\x9b2J", "\\x1b[31mred\\x07\\x9b2J"),
    "lines": ("one\rtwo\u2028three", "one\\rtwo\\u2028three"),
}
#: Characters that change how others are shown, or that a terminal obeys.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
#: Texts of the page and of its tips.
EVERYTHING = """() => [document.title, document.body.textContent, ...[...document.querySelectorAll("*")].flatMap(
    (each) => ["title", "aria-label", "alt"].map((name) => each.getAttribute(name) ?? ""))].join("|")"""
#: Octets of the longest name in one frame with others, and of one that management takes.
LONG_NAME = 4000
LONG = 100_000
PLACES = ("overview", "addresses", "links", "connections", "topology", "entities", "log")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(tmp_path_factory.mktemp("plain"), [listener(), web(), *SETTINGS])
    router.start()
    yield router
    router.kill()


def check_visible(page: Any) -> None:
    """Check that the page has no character that a reader cannot see, and runs no markup."""
    found = UNSEEN.search(page.evaluate(EVERYTHING))
    assert found is None, f"{found[0]!r} in {found.string[max(0, found.start() - 60) : found.end() + 20]!r}"
    assert "broken" not in page.title()


def client(router: RouterProcess, name: str) -> AmqpPeer:
    """Connect a client that uses a name wherever a client may give one."""
    peer = AmqpPeer.opened(
        router.port, container_id=name, properties={Symbol("product"): name, Symbol("version"): name}
    )
    peer.sender(name, name=name, credit=False)
    peer.receiver(name, 1, name=f"{name} 2")
    return peer


@pytest.mark.parametrize("kind", TEXTS)
def test_hostile_text_is_shown_with_visible_characters(page: Any, plain: RouterProcess, kind: str) -> None:
    given, shown = TEXTS[kind]
    with client(plain, given):
        for place, table in (("addresses", "Addresses"), ("links", "Links"), ("connections", "Connections")):
            page.goto(url(plain, place))
            row(page, table, shown).click()
            page.get_by_role("complementary").get_by_text(shown).first.wait_for()
            check_visible(page)
        page.goto(url(plain, "addresses"))
        row(page, "Addresses", shown).click()
        page.get_by_role("link", name="Explain", exact=True).last.click()
        page.get_by_text("reachable").first.wait_for()
        page.get_by_text(shown).first.wait_for()
        check_visible(page)
        for place in PLACES:
            page.goto(url(plain, place))
            page.locator("h1").wait_for()
            check_visible(page)


def test_text_of_100_kilobytes_leaves_the_pages_usable(page: Any, plain: RouterProcess) -> None:
    """The browser needs its usual time for a page, and no text makes a page wider than its window."""
    with client(plain, "n" * LONG_NAME), AmqpPeer.opened(plain.port) as peer:
        Management(peer).create("router.config.address", "m" * LONG, prefix="p" * LONG)
        for place in PLACES:
            page.goto(url(plain, place))
            page.locator("h1").wait_for()
            width = page.evaluate("() => document.documentElement.scrollWidth")
            assert width <= page.viewport_size["width"], place
        for place, table in (("addresses", "Addresses"), ("links", "Links"), ("connections", "Connections")):
            page.goto(url(plain, place))
            row(page, table, "nnnn").click()
            page.get_by_role("complementary").wait_for()
