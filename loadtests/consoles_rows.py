"""Rows about consoles at real routers: time to the first paint, and the load that one and fifty add to ten routers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from loadtests.configuration import configuration_text, listener
from loadtests.console_rows import chromium
from loadtests.edge_rows import edge, wait_uplinks, with_edges
from loadtests.measuring import BODY, Bench, cpu_seconds
from loadtests.network_rows import interior, through, wait_known
from loadtests.overviews import Overviews
from loadtests.processes import ROOT, BenchRouter, MeasureError
from loadtests.report import Figure, at_most, ratio_at_most
from tests.system.router import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

MANY = 50  # consoles
EDGES = (2, 3, 2)  # edge routers of each interior router: ten routers in all
RATE = 1_000  # messages/s of other clients
SECONDS = 10  # duration of each measurement
ROUNDS = 3
SETTLE = 2.0  # seconds for routers to announce new and lost addresses, which messages to new ones wait for
WEB = configuration_text(listener("web", http=True))
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
#: Sets window.filled when the first row of the overview appears.
FILLED = """new MutationObserver((_, observer) => {
    if (document.querySelector('[aria-label=Routers] .row:not(.heads)') === null) return;
    window.filled = performance.now();
    observer.disconnect();
}).observe(document, {childList: true, subtree: true});"""


def first_paint(bench: Bench) -> list[Figure]:
    """Measure the first visit of a browser to a router's console."""
    _need_console()
    painted, filled = [], []
    standalone = interior("A").replace("mode: interior", "mode: standalone")
    with bench.router(1, standalone + WEB) as router, chromium() as browser:
        for _ in range(max(3, bench.effort.rounds)):
            context = browser.new_context()  # a context has its own cache
            page = context.new_page()
            page.add_init_script(FILLED)
            page.goto(f"http://127.0.0.1:{router.ports[-1]}/")
            page.locator("[aria-label=Routers] .row:not(.heads)").first.wait_for()
            painted.append(float(page.evaluate(PAINTED)))
            filled.append(float(page.evaluate("window.filled")))
            context.close()
    return [
        Figure("console: first paint", median(painted), "ms", at_most(1000)),
        Figure("console: first rows of the overview", median(filled), "ms", None),
    ]


def _need_console() -> None:
    if not (ROOT / "supervisor" / "web" / "console" / "index.html").exists():
        raise MeasureError("the console is not built: make console")


class TenRouters(NamedTuple):
    """Network of ten routers with one worker each: A, B and C, fully connected, and their edge routers."""

    interiors: list[BenchRouter]
    edges: list[BenchRouter]

    @property
    def web(self) -> int:
        """Port of the console, at A."""
        return self.interiors[0].ports[-1]

    def cpu(self) -> tuple[float, float]:
        """Return the CPU seconds so far, of A and of all routers."""
        found = [cpu_seconds(router.pid) for router in (*self.interiors, *self.edges)]
        return found[0], sum(found)


@contextmanager
def ten_routers(bench: Bench) -> Iterator[TenRouters]:
    """Run the ten routers; yield when the interior routers know each other."""
    to_a, to_b = free_port(), free_port()
    texts = [with_edges("A", to_a) + WEB, with_edges("B", to_b, (to_a,)), with_edges("C", None, (to_a, to_b))]
    with ExitStack() as stack:
        interiors = [stack.enter_context(bench.router(1, text)) for text in texts]
        edges = []
        for router, count, name in zip(interiors, EDGES, "ABC", strict=True):
            port = router.ports[1 if name == "C" else 2]
            for number in range(count):
                edges.append(stack.enter_context(bench.router(1, edge(f"{name}-edge-{number}", port))))
                wait_uplinks(edges[-1], 1)
        wait_known(interiors[0], {"B": 1, "C": 1})
        yield TenRouters(interiors, edges)


class ConsoleLoad(NamedTuple):
    """Measured shares of a core (A, all routers), and latency of other clients in µs."""

    own: float
    all: float
    p99: float


def look(network: TenRouters) -> ConsoleLoad:
    """Measure while other clients' messages go from A to B."""
    a, b, _ = network.interiors
    time.sleep(SETTLE)
    before, began = network.cpu(), time.monotonic()
    report = through(a, b, rate=RATE, seconds=SECONDS, size=BODY)
    after, seconds = network.cpu(), time.monotonic() - began
    own, total = ((one - other) / seconds for one, other in zip(after, before, strict=True))
    return ConsoleLoad(own, total, report["latency_us"]["p99"])


def consoles(bench: Bench) -> list[Figure]:
    """Measure one and fifty overviews at A beside other clients' messages, in turn with none. One is in a browser."""
    _need_console()
    none, one, many, reports = [], [], [], []
    with ten_routers(bench) as network, chromium() as browser:
        look(network)  # routers that have just started have additional work
        for _ in range(ROUNDS):
            none.append(look(network))
            page = browser.new_page(viewport={"width": 1360, "height": 850})
            _open_overview(page, network)
            one.append(look(network))
            with Overviews(network.web, MANY - 1) as crowd:
                crowd.report()
                many.append(look(network))
                reports.append(crowd.report())
            page.close()
    return _figures(none, one, many, reports)


def _open_overview(page: Page, network: TenRouters) -> None:
    page.goto(f"http://127.0.0.1:{network.web}/")
    page.get_by_text(f"3 routers, {sum(EDGES)} edge routers").wait_for()


def _figures(
    none: list[ConsoleLoad], one: list[ConsoleLoad], many: list[ConsoleLoad], reports: list[dict[str, Any]]
) -> list[Figure]:
    def cost(these: list[ConsoleLoad], field: int, count: int) -> float:
        """Return the percentage of a core that each of `count` consoles adds."""
        return 100 * median((each[field] - alone[field]) / count for each, alone in zip(these, none, strict=True))

    own, everybody = 0, 1
    alone = median(each.p99 for each in none) / 1000
    what, unit = f"{sum(EDGES) + 3} routers, {{}}", "% of a core each"
    return [
        Figure(f"{what.format('1 console')}: CPU of its router", cost(one, own, 1), unit, at_most(1)),
        Figure(f"{what.format('1 console')}: CPU of all routers", cost(one, everybody, 1), unit, None),
        Figure(f"{what.format(f'{MANY} consoles')}: CPU of their router", cost(many, own, MANY), unit, at_most(1)),
        Figure(f"{what.format(f'{MANY} consoles')}: CPU of all routers", cost(many, everybody, MANY), unit, None),
        Figure("without a console: CPU of all routers", 100 * median(each.all for each in none), "% of a core", None),
        *(
            Figure(
                f"{count}: p99 of others",
                median(each.p99 for each in these) / 1000,
                "ms",
                bar,
                alone,
                "without a console",
            )
            for count, these, bar in (
                ("1 console", one, ratio_at_most(2)),
                (f"{MANY} consoles", many, ratio_at_most(2)),
            )
        ),
        Figure(
            f"{MANY} consoles: answers",
            median(each["answers"] / (MANY - 1) / SECONDS for each in reports),
            "/s each",
            None,
        ),
        Figure(f"{MANY} consoles: half of the answers within", median(each["median"] for each in reports), "ms", None),
    ]
