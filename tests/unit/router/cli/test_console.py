"""URLs of the web console of a running router."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.cli.console import consoles


def listener(**more: Any) -> dict[str, Any]:
    row = {"host": "h", "port": "8080", "http": True, "websockets": True, "httpRootDir": None, "sslProfile": None}
    return {**row, **more}


@pytest.mark.parametrize(
    ("row", "asked", "urls"),
    [
        (listener(), "r", ["http://h:8080"]),
        (listener(sslProfile="p"), "r", ["https://h:8080"]),
        (listener(host="0.0.0.0"), "r", ["http://r:8080"]),
        (listener(host="::"), "0.0.0.0", ["http://localhost:8080"]),
        (listener(host=""), "", ["http://localhost:8080"]),
        (listener(host="::1"), "r", ["http://[::1]:8080"]),
        (listener(port="0"), "r", []),
        (listener(port=0), "r", []),
        (listener(http=False), "r", []),
        (listener(websockets=False), "r", []),
        (listener(httpRootDir="/srv"), "r", []),
    ],
)
def test_listener_gives_url_of_its_console(row: dict[str, Any], asked: str, urls: list[str]) -> None:
    assert [url.rstrip("/") for url in consoles([row], asked)] == urls
