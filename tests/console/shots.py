"""Pictures of each page of the console, light and dark, wide and on a phone: python -m tests.console.shots FOLDER

The pictures are for people to look at. `make console-shots` writes them to build/console-shots.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.console.conftest import CHROMIUM
from tests.console.network import ConsoleNetwork, url

#: Address of each page, and the selector that shows that the page is complete.
PAGES = {
    "overview": ("overview", "text=is blocked"),
    "topology": ("topology?path=invoices&select=South", "aside dl"),
    "charts": ("charts", "figure"),
    "addresses": ("addresses?router=*", ".row:not(.heads)"),
    "links": ("links?router=*&sort=-blocked", ".row:not(.heads)"),
    "connections": ("connections?select=2", "aside dl"),
    "explain": ("explain?address=letters", ".way"),
    "linkroutes": ("linkroutes", ".nothing"),
    "autolinks": ("autolinks", ".nothing"),
    "workers": ("workers?router=South", ".row:not(.heads)"),
    "vhosts": ("vhosts", ".nothing"),
    "entities": ("entities", ".cards a"),
    "entity": ("entities/listener", ".row:not(.heads)"),
    "reload": ("reload", ".calm"),
    "log": ("log", ".row:not(.heads)"),
    "frames": ("trace/1", ".lines time"),
}
SIZES = {"wide": (1360, 850), "phone": (390, 800)}
#: Milliseconds before the first picture, so that rates and charts have several samples, and before each further one.
FIRST_WAIT = 30_000
NEXT_WAIT = 700


def main() -> None:
    """Take all pictures."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="console-shots-") as directory:
        network = ConsoleNetwork(Path(directory))
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                for theme in ("light", "dark"):
                    for size, (width, height) in SIZES.items():
                        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
                        take_pictures(page, network, folder, f"{size}-{theme}")
                        page.close()
                browser.close()
        finally:
            network.stop()
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


def take_pictures(page: Any, network: ConsoleNetwork, folder: Path, kind: str) -> None:
    """Take the pictures of all pages in one size and theme."""
    page.goto(url(network.north, "overview"))
    page.wait_for_timeout(FIRST_WAIT)
    for name, (address, selector) in PAGES.items():
        page.goto(url(network.north, address))
        page.locator(selector).first.wait_for(timeout=60_000)
        page.wait_for_timeout(9_000 if name == "topology" else NEXT_WAIT)
        page.screenshot(path=folder / f"{name}-{kind}.png")


if __name__ == "__main__":
    main()
