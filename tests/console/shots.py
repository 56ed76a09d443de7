"""Pictures of each page of the console, light and dark, on a phone, a laptop and a large screen.

Use: python -m tests.console.shots FOLDER [PAGE...]. The pictures are for people to look at. `make console-shots` writes
them to build/console-shots. The network is console/test/fleet.tsx: 21 routers, hostile names, and troubles.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from loadtests.console_rows import chromium, simulated

#: Address of each page, and the selector that shows that the page is complete.
PAGES = {
    "overview": ("overview", "text=is not connected"),
    "topology": ("topology", "canvas"),
    "topology-open": ("topology?open=edges:frankfurt-1&select=crowd:frankfurt-1", "aside table"),
    "topology-path": ("topology?path=orders", "canvas"),
    "charts": ("charts", "figure"),
    "addresses": ("addresses?router=*", ".row:not(.heads)"),
    "links": ("links?router=*&sort=-blocked", ".row:not(.heads)"),
    "link": ("links?router=sydney-1&sort=-blocked&select=20", "aside dl"),
    "connections": ("connections?select=2", "aside dl"),
    "explain": ("explain?address=shipping.labels&router=store-000.edge.example-retail.com", ".way"),
    "linkroutes": ("linkroutes", ".row:not(.heads)"),
    "autolinks": ("autolinks", ".row:not(.heads)"),
    "workers": ("workers?router=sydney-1", ".row:not(.heads)"),
    "vhosts": ("vhosts?router=dublin-1", ".row:not(.heads)"),
    "entities": ("entities", ".cards a"),
    "entity": ("entities/connector", ".row:not(.heads)"),
    "reload": ("reload", ".change"),
    "log": ("log", ".row:not(.heads)"),
    "frames": ("trace/1", ".lines time"),
}
SIZES = {"390": (390, 844), "1280": (1280, 800), "1920": (1920, 1080)}
#: Milliseconds before the first picture, so that rates and charts have several samples, and before each further one.
FIRST_WAIT = 9_000
NEXT_WAIT = 500
LAID_OUT = (
    "!document.querySelector('canvas').drawing.improving"
    " && document.querySelector('canvas').drawing.graph.nodes.size >= 19"
)


def main() -> None:
    """Take all pictures, or those of the given pages."""
    folder = Path(sys.argv[1])
    wanted = sys.argv[2:] or list(PAGES)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="console-shots-") as directory,
        simulated(Path(directory), "fleet.tsx") as address,
        chromium() as browser,
    ):
        for theme in ("light", "dark"):
            context = browser.new_context(color_scheme=theme)
            page = context.new_page()
            page.goto(address)
            page.wait_for_timeout(FIRST_WAIT)
            for name in wanted:
                take_pictures(page, address, name, folder, theme)
            context.close()
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


def take_pictures(page: Any, address: str, name: str, folder: Path, theme: str) -> None:
    """Take the pictures of a page in all sizes."""
    place, selector = PAGES[name]
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{address}#/{place}")
        page.locator(selector).first.wait_for(timeout=60_000)
        if name.startswith("topology"):
            page.wait_for_function(LAID_OUT, timeout=60_000)
        page.wait_for_timeout(NEXT_WAIT)
        page.screenshot(path=folder / f"{name}-{size}-{theme}.png")


if __name__ == "__main__":
    main()
