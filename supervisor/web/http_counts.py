"""Counters of the HTTP server, for its metrics."""

from msgspec import Struct


class HttpCounts(Struct, frozen=True):
    """Counters of the HTTP server. requests: by page and status. refused: by reason."""

    requests: dict[tuple[str, int], int]
    refused: dict[str, int]
    connections: int
    scrape_seconds: float
