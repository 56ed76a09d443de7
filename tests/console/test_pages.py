"""Pages of the console in a browser, with a network of real routers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.console.network import ConsoleNetwork, url
from tests.peer.peer import AmqpPeer
from tests.system.router import RouterProcess, poll

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console-pages")]  # the tests share a network

#: Rate of messages that move, whatever the speed of the machine.
MOVING = re.compile(r"[1-9][0-9.]*( k)?/s")
DRAWING = "document.querySelector('canvas').drawing"


def rows(page: Any, table: str) -> Any:
    """Return the rows of a table that are in the document, without the heads."""
    return page.get_by_role("grid", name=table).locator(".row:not(.heads)")


def row(page: Any, table: str, text: str) -> Any:
    """Return the first row that contains a text."""
    return rows(page, table).filter(has_text=text).first


def open_page(page: Any, network: ConsoleNetwork, place: str) -> None:
    """Open a page and wait for its title."""
    page.goto(url(network.north, place))
    page.locator("h1").wait_for()


def test_overview_page_shows_routers_and_findings(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "overview")
    for name in ("North", "South", "West", "Kiosk"):
        row(page, "Routers", name).wait_for()
    page.get_by_text("3 routers, 1 edge router").wait_for()
    page.locator(".tile", has_text="Messages in").filter(has_text=MOVING).wait_for()
    finding = page.get_by_role("region", name="Needs attention").get_by_role("link", name="letters is blocked")
    finding.wait_for(timeout=60_000)
    finding.click()
    page.get_by_role("heading", name="Explain an address").wait_for()
    page.get_by_text("A message sent now is not taken: no credit: 1 consumer withholds it").wait_for()


def test_addresses_page_shows_and_filters_rows(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "addresses")
    row(page, "Addresses", "orders").click()
    panel = page.get_by_role("complementary", name="orders")
    panel.get_by_text("Deliveries ingress", exact=True).wait_for()
    assert rows(page, "Addresses").filter(has_text="$management").count() == 0
    page.get_by_label("the routers' own, too").check()
    row(page, "Addresses", "$management").wait_for()
    page.get_by_label("Filter Addresses").fill("address:letters")
    row(page, "Addresses", "letters").wait_for()
    assert rows(page, "Addresses").filter(has_text="orders").count() == 0
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")


def test_explain_follows_the_path(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "explain?address=invoices")
    page.locator(".way", has_text=re.compile("North.*South.*West")).wait_for()
    for name in ("North", "South", "West"):
        page.get_by_role("region", name=f"Router {name}").wait_for()
    page.get_by_role("region", name="Router West").get_by_role("link", name="billing-1").wait_for()


def test_explain_shows_the_address_of_its_link(page: Any, network: ConsoleNetwork) -> None:
    """The page shows the address of its own link even if it showed another address before."""
    open_page(page, network, "explain?address=invoices")
    page.get_by_text("A message sent now is taken at West").wait_for()
    open_page(page, network, "explain?address=letters")
    page.get_by_text("A message sent now waits").wait_for()
    assert page.get_by_label("Address", exact=True).input_value() == "letters"


def test_stuck_messages_count_once(page: Any, network: ConsoleNetwork) -> None:
    """A stuck message counts once, although each router on its path counts it."""
    open_page(page, network, "overview")
    tile = page.locator(".tile", has_text="Stuck messages")
    tile.filter(has_text=re.compile(r"messages250$")).wait_for(timeout=60_000)


def test_links_page_shows_rates_and_sorts(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "links?router=*")
    row(page, "Links", "invoices").wait_for()
    page.get_by_role("columnheader", name="Rate").get_by_role("button").wait_for()
    rows(page, "Links").filter(has_text=re.compile(r"orders.*[1-9]\d*(\.\d)?/s")).first.wait_for()
    page.get_by_role("button", name="Address", exact=True).click()
    names = rows(page, "Links").locator("> :nth-child(3)")
    poll(lambda: (found := names.all_inner_texts()) == sorted(found) and found, "links are sorted by address")


def test_connection_is_closed_after_confirmation(page: Any, network: ConsoleNetwork) -> None:
    with AmqpPeer.opened(network.north.port, container_id="victim"):
        open_page(page, network, "connections")
        row(page, "Connections", "victim").click()
        page.get_by_role("button", name="Close …").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Close …").click()
        page.get_by_role("dialog").get_by_role("button", name="Close the connection").click()
        row(page, "Connections", "victim").wait_for(state="detached")


def test_frames_page_shows_live_frames(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "connections")
    row(page, "Connections", "shop-1").click()
    page.get_by_role("link", name="Frames, live").click()
    page.locator(".lines li", has_text="transfer").first.wait_for()
    page.get_by_role("button", name="Pause").click()


def test_frames_are_logged_on_request(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "connections")
    row(page, "Connections", "dashboard-0").click()
    page.get_by_role("button", name="Log frames").click()
    page.get_by_role("button", name="Stop logging frames").click()
    page.get_by_role("button", name="Log frames", exact=True).wait_for()


def test_workers_page_shows_another_router(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "workers?router=South")
    poll(lambda: rows(page, "Workers").count() == 2, "both workers are there")
    rows(page, "Workers").first.filter(has_text=re.compile(r"\d %")).wait_for()
    rows(page, "Workers").first.click()
    page.get_by_text("Waiting for other workers").wait_for()


def test_edge_router_shows_its_connections(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "connections?router=Kiosk")
    row(page, "Connections", "billing-2").wait_for()


def test_topology_page_shows_traffic_and_paths(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "topology")
    page.get_by_text(re.compile(r"3 routers, 1 edge router, \d+ clients in \d+ groups")).wait_for()
    edges = f"[...{DRAWING}.graph.edges.values()].map(e => [e.from, e.to, e.cost, e.there + e.back > 20])"
    poll(lambda: ["North", "West", 5, False] in page.evaluate(edges), "the cost of the way that is not taken")
    poll(lambda: ["North", "South", 1, True] in page.evaluate(edges), "traffic on the way that is", 20)
    page.get_by_label("Find").fill("Kiosk")
    page.keyboard.press("Enter")
    page.get_by_role("complementary", name="Kiosk").get_by_text("Connection count").wait_for()
    page.get_by_label("Address whose path is shown").fill("invoices")
    page.get_by_role("button", name="Show").click()
    path = f"(p => p && [...p.edges].map(e => e.split('\\n').sort().join('-')))({DRAWING}.path)"
    poll(lambda: {"North-South", "South-West"} <= set(page.evaluate(path) or []), "the path of the invoices", 20)
    assert "Kiosk-South" not in page.evaluate(path)


def test_topology_places_are_kept_after_reload(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "topology")
    places = f"Object.fromEntries([...{DRAWING}.layout.places])"
    kept = f"!{DRAWING}.improving && Object.keys(JSON.parse(localStorage['sluice.places'] ?? '{{}}')).length === 3"
    poll(lambda: page.evaluate(kept), "all have their final place", 20)
    before = page.evaluate(places)
    page.reload()
    page.locator("canvas").wait_for()
    poll(lambda: len(page.evaluate(places)) == 3, "all are placed again", 20)
    after = page.evaluate(places)
    assert {name: [round(each["x"]), round(each["y"])] for name, each in before.items()} == {
        name: [round(each["x"]), round(each["y"])] for name, each in after.items()
    }


def test_charts_page_shows_chosen_charts(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "charts")
    messages = page.get_by_role("figure", name="Messages in")
    messages.get_by_text(MOVING).first.wait_for()
    messages.get_by_text("all routers").wait_for()
    page.get_by_role("region", name="Events").get_by_text("The router started").first.wait_for()
    page.get_by_text("Choose charts").click()
    page.get_by_label("Rejected").check()
    page.get_by_role("figure", name="Rejected").wait_for()
    open_page(page, network, "addresses")
    row(page, "Addresses", "orders").click()
    page.get_by_role("link", name="Chart Deliveries ingress", exact=True).click()
    own = page.get_by_role("figure", name="Deliveries ingress")
    own.get_by_text(MOVING).first.wait_for()


def test_entities_page_creates_and_deletes(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "entities")
    page.get_by_label("Find a type").fill("fallback")
    page.get_by_role("link", name=re.compile("^address")).click()
    page.get_by_role("button", name="Create …").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=name]").fill("made-here")
    dialog.locator("[name=prefix]").fill("made/here")
    dialog.locator("[name=priority]").fill("high")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text("priority is no whole number").first.wait_for()
    dialog.locator("[name=priority]").fill("7")
    dialog.get_by_role("button", name="Create").click()
    row(page, "address", "made-here").click()
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    row(page, "address", "made-here").wait_for(state="detached")


def test_reload_page_plans_and_applies(page: Any, network: ConsoleNetwork) -> None:
    router = network.north
    before = router.config.read_text()
    open_page(page, network, "reload")
    page.get_by_text("nothing would change").wait_for()
    router.config.write_text(before + "address {\n    name: new-one\n    prefix: new\n}\n")
    page.get_by_role("button", name="Look again").click()
    page.get_by_role("region", name=re.compile("new-one")).wait_for()
    page.get_by_role("button", name="Apply 1 change …").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    page.get_by_text("nothing would change").wait_for()
    router.config.write_text(before)


def test_entity_change_is_applied_or_refused_with_reason(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "entities/log")
    row(page, "log", "log/AGENT").click()
    page.get_by_role("button", name="Change …").click()
    field = page.get_by_role("dialog").locator("[name=enable]")
    field.fill("bogus")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    field.fill("warning+")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.get_by_role("complementary").get_by_text("warning+").first.wait_for()


@pytest.mark.parametrize(
    ("place", "title"),
    [("linkroutes", "Link routes"), ("autolinks", "Auto links"), ("vhosts", "Vhosts"), ("log", "Log")],
)
def test_tables_without_rows_explain_why(page: Any, network: ConsoleNetwork, place: str, title: str) -> None:
    open_page(page, network, place)
    page.get_by_role("heading", name=title).wait_for()
    content = re.compile("configured|policy is off|Link attached")
    page.get_by_role("grid", name=title).get_by_text(content).first.wait_for()


def test_keys_move_and_open_pages(page: Any, network: ConsoleNetwork) -> None:
    open_page(page, network, "connections")
    row(page, "Connections", "shop-1").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("shop")
    page.keyboard.press("Tab")
    page.get_by_role("grid").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("complementary", name=re.compile("shop-")).wait_for()
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.get_by_role("heading", name="Workers").wait_for()


@pytest.mark.parametrize("width", [360, 800, 1360, 2200])
def test_pages_fit_the_width_of_the_screen(page: Any, network: ConsoleNetwork, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for place in ("overview", "links", "connections", "charts", "entities", "topology", "explain?address=orders"):
        open_page(page, network, place)
        page.locator(".grid, canvas, figure, .cards a, .way").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place


def test_killed_router_is_reported_and_returns(page: Any, network: ConsoleNetwork) -> None:
    """Last test of the module, because it changes the network."""
    open_page(page, network, "overview")
    row(page, "Routers", "West").wait_for()
    west: RouterProcess = network.routers["West"]
    west.kill()
    vanished = page.get_by_role("link", name="Router West has vanished")
    vanished.wait_for(timeout=60_000)
    row(page, "Routers", "West").wait_for(state="detached")
    vanished.click()
    page.get_by_text(re.compile(r"2 routers, 1 edge router, .*, 1 gone")).wait_for()
    page.get_by_label("Find").fill("West")
    page.keyboard.press("Enter")
    page.get_by_role("complementary", name="West").get_by_text("It was last seen").wait_for()
    open_page(page, network, "overview")
    west.start()
    row(page, "Routers", "West").wait_for(timeout=60_000)
    page.get_by_role("link", name="Router West has vanished").wait_for(state="detached", timeout=60_000)
