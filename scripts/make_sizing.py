"""Write the tables of docs/user/sizing.md from loadtests/results/sizing.json; with --check, verify that they match."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Final, TypedDict

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "user" / "sizing.md"
MEASUREMENTS = ROOT / "loadtests" / "results" / "sizing.json"

CONNECTIONS: Final = (1_000, 10_000, 50_000)
RATES: Final = (1_000, 10_000, 100_000, 1_000_000)  # deliveries a second
LINKS: Final = (100, 1_000, 10_000)  # senders whose messages wait
BODIES: Final = ((0.1, "100 octets"), (1.0, "1 KiB"), (10.0, "10 KiB"))  # KiB and text
CAPACITY: Final = 250  # messages that a sender may have in the router before the credit grows
BUSY: Final = 0.7  # share of a core that is planned for: the rest is for bursts


class Measurement(TypedDict, total=False):
    """Measured figure with the command or page that it comes from.

    `measured_to` is the highest rate of deliveries that was measured with such traffic.
    """

    value: float
    unit: str
    what: str
    source: str
    measured_to: float


Measurements = dict[str, dict[str, Measurement]]


def rounded(value: float) -> str:
    """Return a figure with two significant digits, or whole above 100."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}"


def amount(kib: float) -> str:
    """Return an amount of memory in MiB, or GiB above 1,000 MiB."""
    mib = kib / 1024
    return f"{mib / 1024:.1f} GiB" if mib >= 1000 else f"{rounded(mib)} MiB"


def cores(microseconds: float, rate: int, measured_to: float = math.inf) -> str:
    """Return the cores that a rate needs with reserve; above the highest measured rate, an upper bound."""
    needed = microseconds * rate / 1e6 / BUSY
    return "< 0.1" if needed < 0.1 else ("≤ " if rate > measured_to else "") + rounded(needed)


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def idle_memory(found: Measurements) -> str:
    """Return the memory of routers by workers and idle connections."""
    memory = found["memory"]
    rows = []
    for name, each in memory.items():
        if not name.startswith("router_"):
            continue
        cells = [name.removeprefix("router_"), amount(each["value"] * 1024)]
        for kind in ("connection", "connection_tls"):
            cells += [amount(each["value"] * 1024 + count * memory[kind]["value"]) for count in CONNECTIONS]
        rows.append(cells)
    heads = ["workers", "idle", *(f"{count:,}" for count in CONNECTIONS), *(f"{count:,}, TLS" for count in CONNECTIONS)]
    return table(heads, rows)


def waiting_memory(found: Measurements) -> str:
    """Return the memory of messages that wait, by senders and size, without the bounds of maxBufferedMegabytes."""
    delivery = found["memory"]["delivery"]["value"]
    rows = [[text, *(amount(links * CAPACITY * (size + delivery)) for links in LINKS)] for size, text in BODIES]
    return table(["body", *(f"{links:,} senders" for links in LINKS)], rows)


def delivery_cores(found: Measurements) -> str:
    """Return the cores for deliveries by traffic and rate."""
    rows = []
    for each in found["delivery"].values():
        needed = (cores(each["value"], rate, each["measured_to"]) for rate in RATES)
        rows.append([each["what"], f"{rounded(each['value'])} µs", *needed])
    return table(["traffic", "CPU of a delivery", *(f"{rate:,}/s" for rate in RATES)], rows)


def added_cores(found: Measurements) -> str:
    """Return the CPU added to each delivery."""
    rows = [
        [each["what"], f"{rounded(each['value'])} µs", cores(each["value"], 1_000_000)]
        for each in found["added"].values()
    ]
    return table(["added by", "CPU of a delivery", "cores at 1,000,000/s"], rows)


def event_cores(found: Measurements) -> str:
    """Return the CPU of what clients do besides messages."""
    rows = [
        [
            each["what"],
            f"{rounded(each['value'])} ms",
            cores(each["value"] * 1000, 100),
            cores(each["value"] * 1000, 1_000),
        ]
        for each in found["events"].values()
    ]
    return table(["event", "CPU", "cores at 100/s", "cores at 1,000/s"], rows)


def sources(found: Measurements) -> str:
    """Return each figure with its source."""
    rows = []
    for group, unit in (("memory", ""), ("delivery", "µs"), ("added", "µs"), ("events", "ms")):
        for each in found[group].values():
            rows.append([each["what"], f"{each['value']:g} {each.get('unit', unit)}", each["source"]])
    return table(["figure", "value", "source"], rows)


TABLES: Final = {
    "idle": idle_memory,
    "waiting": waiting_memory,
    "delivery": delivery_cores,
    "added": added_cores,
    "events": event_cores,
    "sources": sources,
}


def page() -> str:
    """Return the page with its tables computed again. Raises ValueError if a marker is missing."""
    text = PAGE.read_text("utf-8")
    found: Measurements = {
        name: group for name, group in json.loads(MEASUREMENTS.read_text("utf-8")).items() if isinstance(group, dict)
    }
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        before, _, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not ended:
            raise ValueError(f"{PAGE}: no table {name}")
        text = f"{before}{begin}{make(found)}\n{end}{after}"
    return text


def main(words: list[str]) -> int:
    """Write or check the page; return the exit status."""
    text = page()
    if "--check" not in words:
        PAGE.write_text(text, "utf-8")
        return 0
    if PAGE.read_text("utf-8") == text:
        return 0
    print(f"{PAGE.relative_to(ROOT)} differs from the measurements: run scripts/make_sizing.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
