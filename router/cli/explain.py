"""`sluice explain ADDRESS`: show the treatment and the receivers of messages to an address, and obstacles."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sluice.router.cli.client import (
    ManagementClient,
    NotFoundStatus,
    NotImplementedStatus,
    Properties,
    UnknownRouter,
)
from sluice.router.cli.options import MANAGEMENT, Parser, add_connection_options, add_target_options, router_of, target
from sluice.router.cli.output import to_json
from sluice.router.cli.table import Display
from sluice.router.cli.tool import run_tool

DESCRIPTION: Final = (
    "Explain what happens to messages to an address. The exit code is 0 if a message sent now would be accepted, "
    "3 if not, 4 if no router answers."
)
UNREACHABLE: Final = 3  # exit code

_HEADS: Final = [
    "link", "conn", "worker", "container", "host", "user", "cred", "cap", "undel", "unsett", "deliv", "no credit for",
    "stall", "stalled for", "name",
]  # fmt: skip
_COUNTERS: Final = {
    "in": "deliveriesIngress",
    "out": "deliveriesEgress",
    "to the router": "deliveriesToContainer",
    "from the router": "deliveriesFromContainer",
    "to fallback": "deliveriesRedirectedToFallback",
}

Answer = dict[str, Any]


def main(words: Sequence[str] | None = None, program: str = "sluice explain") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, DESCRIPTION)
    made.add_argument("address", metavar="ADDRESS", help="address as a client writes it, with its tenant's prefix")
    made.add_argument("--alone", action="store_true", help="query this router only, not the others on the path")
    made.add_argument("--json", action="store_true", help="print the raw answer of the router")
    made.add_argument("--limit", metavar="N", type=int, help="links shown for each address and direction, default 100")
    add_target_options(made)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    properties = {"address": options.address}
    if options.limit is not None:
        properties["limit"] = options.limit
    where = target(options)
    with ManagementClient(where) as client:
        if options.alone:
            answer = client.node_call("EXPLAIN", properties) | {"ways": [], "routers": {}}
        else:
            answer = _explain_paths(client, where.address, properties)
    if options.json:
        print(to_json(answer, 2))
    else:
        show_all(answer, Display(sys.stdout))
    return 0 if is_deliverable(answer) else UNREACHABLE


def _explain_paths(client: ManagementClient, where: str, properties: Properties) -> Answer:
    """Return the answer of the router with address `where`, with `ways` and, in `routers`, the answers of the others.

    The router that the tool is connected to asks them. A router without an answer has the key `error`.
    """
    first = {} if router_of(where) is None else {"first": where}
    try:
        found = client.node_call("EXPLAIN", {**properties, "path": True, **first}, MANAGEMENT if first else where)
    except NotFoundStatus as error:
        raise UnknownRouter(str(error)) from error
    if "ways" not in found:
        raise NotImplementedStatus("This router is too old to query others: use --alone")
    answer, *others = found["routers"]
    return {**answer, "ways": found["ways"], "routers": {other["router"]: other for other in others}}


def is_deliverable(answer: Answer) -> bool:
    """Return whether a message sent now would be delivered at this router or, by their answers, at another one."""
    if answer["reachable"] is False or not answer["ways"]:
        return bool(answer["reachable"])
    here = any(_consumers_able(record) or record["inProcess"] for record in answer["records"])
    ends = (answer["routers"].get(path[-1], {}) for path in answer["ways"])
    unknown = answer["reachable"]  # assumed for routers without an answer
    return here or any(end.get("reachable", unknown) for end in ends)


def _consumers_able(record: Answer) -> int:
    """Return the number of consumers that can take a message; for older versions, of those with credit."""
    return int(record["consumersAble"] if "consumersAble" in record else record["consumersWithCredit"])


def show_all(answer: Answer, display: Display) -> None:
    """Print an answer as text, followed by those of other routers."""
    show(answer, display)
    for path in answer["ways"]:
        display.line()
        display.line(f"Path: {' -> '.join(path)}")
    for router, found in answer["routers"].items():
        display.line()
        if "error" in found:
            display.line(f"--- Router {router} does not answer: {found['error']}")
        else:
            display.line(f"--- Router {router}")
            show(found, display)


def show(answer: Answer, display: Display) -> None:
    """Print an answer as text."""
    # Routers of older versions send no verdict.
    state = answer.get("verdict", "reachable" if answer["reachable"] else "not reachable")
    display.line(f"{answer['address']} ({answer['class']} address): {state}")
    for finding in answer["findings"]:
        display.line(f"  {finding}")
    if answer["setting"] is not None:
        display.line()
        for line in _setting(answer["setting"]):
            display.line(line)
    for tap in answer.get("taps", ()):  # routers of older versions have no taps
        consumers = f"with {tap['consumers']} consumers" if tap["consumers"] else "without a consumer"
        missed = f"; {tap['missed']} messages without a copy" if tap.get("missed") else ""
        display.line(f"  tap '{tap['name']}' ({tap['mode']}) copies messages to {tap['address']}, {consumers}{missed}")
    for record in answer["records"]:
        display.line()
        for line in _record(record):
            display.line(line)
        for direction in ("consumer", "producer"):
            _links(display, direction, record)


def _setting(setting: Answer) -> Iterator[str]:
    where = "no pattern matches: the defaults"
    if setting["pattern"] is not None:
        where = f"pattern {setting['pattern']} of address '{setting['entity']}'"
    yield f"Configured by {where}" if setting["pattern"] is not None else f"Configured: {where}"
    priority = "that of the message" if setting["priority"] is None else setting["priority"]
    yield f"  distribution {setting['distribution']}, ingress phase {setting['ingressPhase']}, egress phase " + (
        f"{setting['egressPhase']}, priority {priority}"
    )
    yield f"  fallback {'yes' if setting['fallback'] else 'no'}, presettledOverflow {setting['presettledOverflow']}"


def _record(record: Answer) -> Iterator[str]:
    phase = "" if record["phase"] is None else f", phase {record['phase']}"
    yield f"In the table: {record['key']}{phase}, {record['treatment']}"
    if record["inProcess"]:
        yield "  consumed by the router itself"
    for remote in record["remotes"]:
        where = "no path"
        if remote["nextHop"] is not None:
            where = f"next router {remote['nextHop']}, cost {remote['cost']}"
        yield f"  consumers at router {remote['router']}: {where}, {remote['unsettled']} unsettled"
    if record["remoteCount"] > len(record["remotes"]):
        yield f"  and at {record['remoteCount'] - len(record['remotes'])} more routers"
    if record["fallback"] is not None:
        yield f"  its fallback is {record['fallback']}"
    if record["fallbackOf"] is not None:
        yield f"  the fallback of {record['fallbackOf']}"
    if record["exchange"] is not None:
        yield from _exchange(record["exchange"])
    waiting = record.get("deliveriesWaiting", 0)
    numbers = {title: record[name] for title, name in _COUNTERS.items()}
    # Deliveries in the queues of consumers are included in the egress counter.
    numbers["out"] = max(numbers["out"] - waiting, 0)
    counted = [f"{number} {title}" for title, number in numbers.items() if number or title in ("in", "out")]
    yield f"  messages so far: {', '.join(counted)}{f'; {waiting} wait for consumers' if waiting else ''}"


def _exchange(exchange: Answer) -> Iterator[str]:
    alternate = "" if exchange["alternate"] is None else f", else to {exchange['alternate']}"
    yield f"  exchange '{exchange['name']}', matched as {exchange['match']}{alternate}"
    for binding in exchange["bindings"]:
        yield f"    {binding['key']} -> {binding['nextHop']} ('{binding['name']}')"
    if len(exchange["bindings"]) < exchange["bindingCount"]:
        yield f"    and {exchange['bindingCount'] - len(exchange['bindings'])} more"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _links(display: Display, direction: str, record: Answer) -> None:
    """Print the links of one direction as a table, with their number."""
    count, links = record[f"{direction}Count"], record[f"{direction}s"]
    more = f", the first {len(links)}" if len(links) < count else ""
    rows = [
        (
            link["identity"],
            link["connection"],
            link["worker"],
            link["container"],
            link["host"],
            link["user"],
            link["credit"],
            f"{link['capacity']}, adapts" if link.get("capacityAdapts") else link["capacity"],
            link["undelivered"],
            link["unsettled"],
            link["deliveries"],
            _seconds(link["withoutCreditSeconds"]),
            link.get("stall") or "-",
            _seconds(link.get("stallSeconds")),
            link["name"],
        )
        for link in links
    ]
    display.table(f"{direction.capitalize()}s: {count}{more}", _HEADS, rows)


if __name__ == "__main__":
    sys.exit(main())
