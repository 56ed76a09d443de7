"""EXPLAIN: routing of messages to an address, its users, and reasons for failures. Not in Dispatch.

Properties: `address`, as a client would write it (for a multi-tenant listener with the tenant in front); `limit` of
links listed for each address and direction, 100 if absent. The body is a map:

`address`, `class`, `name` (the significant part), `router` (id of the answering router), `setting` (the address
setting; null for addresses without settings; `pattern` is null if none matches), `records` (entries of the address
table, see `_record`), `reachable` (whether a message sent now would be delivered, as far as this router knows; null if
an edge router does not know), `verdict` (a short summary of it with the reason), `findings` (texts with the reasons,
the most important first).
"""

import heapq
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

from sluice.router.addressing.address import (
    AREA,
    EDGE,
    FALLBACK_PHASE,
    LOCAL,
    MOBILE,
    ROUTER,
    TOPOLOGICAL,
    classify,
    key,
    normalise,
)
from sluice.router.addressing.pattern import PatternError
from sluice.router.addressing.settings import UNAVAILABLE, AddressSetting
from sluice.router.config import roles
from sluice.router.stalls.reason import StallReason, StallWord
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.configuration.ops import address_entry
from sluice.supervisor.connections.connections import DATA, RegisteredLink
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.explain_brokers import add_brokers
from sluice.supervisor.management.explain_uplink import add_peers, add_uplink
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, OK, Response, StatusError
from sluice.supervisor.management.similar_addresses import similar_addresses
from sluice.supervisor.management.stalls import LinkStall, find_stall, peer_of
from sluice.supervisor.management.throttling import ThrottledSenders

DEFAULT_LIMIT: Final = 100  # links listed for each record and direction
MAX_LIMIT: Final = 10_000
LINKS_A_STEP: Final = 500  # links examined before other events are handled

CLASSES: Final = {
    MOBILE: "mobile",
    LOCAL: "local",
    TOPOLOGICAL: "topo",
    ROUTER: "router",
    AREA: "area",
    EDGE: "edge",
}
_WAYS: Final = 10  # routers named in a finding
_PHASES: Final = (*range(10), FALLBACK_PHASE)
_COUNTERS: Final = {
    "deliveriesIngress": "ingress",
    "deliveriesEgress": "egress",
    "deliveriesToContainer": "to_container",
    "deliveriesFromContainer": "from_container",
    "deliveriesRedirectedToFallback": "redirected",
}
_LINK_COUNTERS: Final = {
    "capacity": "capacity",
    "credit": "credit",
    "undelivered": "undelivered",
    "unsettled": "unsettled",
    "deliveries": "deliveries",
    "accepted": "accepted",
    "rejected": "rejected",
    "released": "released",
    "modified": "modified",
}
_STALLS: Final = 5  # links named in findings, for each direction
_WITHOUT_CONSUMERS: Final = ("not in use", "no consumer")  # verdicts for which a misspelt address may be the reason
_BEYOND: Final = -1  # in place of a record id: links to next hops, and routed links
# Stalls of links by record id and whether the links are consumers.
Stalls = dict[tuple[int, bool], list[LinkStall]]


def explain(request: Request, context: AgentContext) -> Generator[None, None, Response]:
    """Explain an address. Raises StatusError."""
    text = request.text("address")
    if text is None:
        raise StatusError(BAD_REQUEST, "No 'address' property: say which address to explain")
    limit = request.number("limit")
    if limit is not None and not 0 <= limit <= MAX_LIMIT:
        raise StatusError(BAD_REQUEST, f"'limit' is {limit}, must be 0 to {MAX_LIMIT}")
    router = context.changes.configuration.router
    cls, name = classify(normalise(text), router.id, router.mode)
    setting = context.core.settings.current.lookup(name) if cls == MOBILE else None
    records = {record.id: record for record in _records(context, cls, name)}
    limit = DEFAULT_LIMIT if limit is None else limit
    found = {number: _record(context, record, limit) for number, record in records.items()}
    stalls: Stalls = {}
    senders = ThrottledSenders(context)
    further = yield from _add_links(context, records, found, stalls, senders, limit, name if cls == MOBILE else None)
    for number, row in found.items():
        row["stalls"] = stalls.get((number, True), [])
    verdict = _verdict(cls, name, setting, list(found.values()), alone=context.core.routers is None)
    for row in found.values():
        del row["stalls"], row["stuckConsumers"], row["holders"]
    if cls == MOBILE and not any(record["inProcess"] for record in found.values()):
        add_brokers(context, name, verdict)
    if cls == MOBILE and verdict["verdict"].startswith(_WITHOUT_CONSUMERS):
        verdict["findings"] += yield from similar_addresses(context.core.table.records.values(), name)
    phase = 0 if setting is None else setting.ingress_phase
    peers, at_peer = context.core.peers, False
    if peers is not None:
        at_peer = add_peers(peers, context.core.table, text, key(cls, name, phase), verdict)
    if context.core.uplink is not None and not at_peer:
        interior = add_uplink(context.core.uplink, cls, name, phase, verdict)
        if interior is not None:
            further[interior] = False
    verdict["findings"] += [*_other_stall_findings(stalls), *senders.findings()]
    body = {
        "address": text,
        "class": CLASSES[cls],
        "name": name,
        "router": router.id,
        "setting": None if setting is None else _setting(context, setting),
        "records": list(found.values()),
        "taps": context.core.taps.describe(key(cls, name, phase))[:limit],
        **verdict,
        # Routers that may know more: those behind edge connections of either role, which the path between interior
        # routers does not show.
        "further": [{"router": name, "edge": edge} for name, edge in sorted(further.items())[:limit]],
    }
    return Response.of(OK, body)


def _records(context: AgentContext, cls: str, name: str) -> Iterator[AddressRecord]:
    """Iterate over the records of an address; for a mobile address, over all phases and the fallback instance."""
    for phase in _PHASES if cls == MOBILE else (0,):
        record = context.core.table.records.get(key(cls, name, phase))
        if record is not None:
            yield record


def _setting(context: AgentContext, setting: AddressSetting) -> dict[str, Any]:
    """Return the setting of the address, and the entity that defines it."""
    pattern = context.core.settings.current.pattern_of(setting)
    entity = _entity(context, pattern)
    return {
        "pattern": pattern,
        "entity": entity,
        "distribution": setting.distribution,
        "ingressPhase": setting.ingress_phase,
        "egressPhase": setting.egress_phase,
        "priority": setting.priority,
        "fallback": setting.fallback,
        "presettledOverflow": setting.overflow,
    }


def _entity(context: AgentContext, pattern: str | None) -> str | None:
    """Return the name of the configured address with a canonical pattern, or None."""
    if pattern is None:
        return None
    for address in context.changes.configuration.addresses:
        try:
            if address_entry(address)[0] == pattern:
                return address.name
        except PatternError:
            continue  # refused, with a line in the log
    return None


def _record(context: AgentContext, record: AddressRecord, limit: int) -> dict[str, Any]:
    """Return one record: treatment, users other than links, counters, and empty lists for its links."""
    counters = context.region.address_totals(record.id)
    return {
        "key": record.key,
        "phase": record.key[1] if record.key[0] == MOBILE else None,
        "treatment": record.treatment,
        "priority": record.priority,
        "presettledOverflow": record.overflow,
        "fallback": None if record.fallback is None else record.fallback.key,
        "fallbackOf": None if record.primary is None else record.primary.key,
        "inProcess": record.inproc,
        "exchange": context.core.exchanges.describe(record, limit),
        **{title: counters[name] for title, name in _COUNTERS.items()},
        "consumerCount": 0,
        "consumers": [],
        "producerCount": 0,
        "producers": [],
        # Sums over all consumers, including those beyond the limit.
        "consumersWithCredit": 0,
        "consumersAble": 0,  # consumers without a stall
        "longestWithoutCreditSeconds": None,
        "deliveriesStuck": 0,
        "holders": [],  # unsettled deliveries and connection of each consumer that has any; not in the answer
        "stuckConsumers": [],  # stuck deliveries and connection of each consumer that has any; not in the answer
        "deliveriesWaiting": 0,  # deliveries counted as egress but not written yet
        "remoteCount": len(record.remotes or ()),
        "remotes": _remotes(context, record, limit),
    }


def _remotes(context: AgentContext, record: AddressRecord, limit: int) -> list[dict[str, Any]]:
    """Return the routers with destinations, nearest first.

    Each has its id, next hop (None: no path), cost, the number of unsettled deliveries to it, and the seconds for which
    messages still wait for a path (None: they do not).
    """
    routers = context.core.routers
    if routers is None or not record.remotes:
        return []
    known = {row.index: row for row in routers.rows()}
    found = [
        {
            "router": row.id,
            "nextHop": (row.next_hop or row.id) if row.reachable else None,
            "cost": row.cost,
            "connections": [str(link) for link in routers.links_of(index)],
            "unsettled": context.region.remote_unsettled(counters),
            "awaitedSeconds": context.core.absent_routers.remaining(index),
        }
        for index, counters in record.remotes.items()
        if (row := known.get(index)) is not None
    ]
    return sorted(found, key=lambda each: (each["nextHop"] is None, each["cost"] or 0, each["router"]))[:limit]


def _add_links(
    context: AgentContext,
    records: dict[int, AddressRecord],
    found: dict[int, dict[str, Any]],
    stalls: Stalls,
    senders: ThrottledSenders,
    limit: int,
    routed: str | None,
) -> Generator[None, None, dict[str, bool]]:
    """Add the links of the records to `found`.

    Returns the routers at the other end of edge connections with consumers: id, and whether it is an edge router.

    stalls: filled by record and whether the link is a consumer. senders: gets all links of the records. routed: address
    of routed links to be examined as well.
    """
    further: dict[str, bool] = {}
    hops = {hop for row in found.values() for remote in row["remotes"] for hop in remote["connections"]}
    shut: set[str] = set()  # connections to next hops that accept no messages
    edge = context.core.uplink is not None
    for number, link in enumerate(list(context.core.links.by_identity.values()), 1):
        if not number % LINKS_A_STEP:
            yield
        record = link.record
        beyond = _is_beyond(link, hops, routed)
        if link.closed or not (beyond or (record is not None and records.get(record.id) is record)):
            continue
        counters = context.region.link_counters(link.worker, link.slot)
        if counters is None or counters["generation"] != link.generation:
            continue
        stall = find_stall(context.core, link, counters, time.monotonic_ns())
        if beyond or record is None:
            if stall is not None:
                stalls.setdefault((_BEYOND, link.consumer), []).append(stall)
            if stall is not None and counters["stall"] in (StallReason.UNREAD, StallReason.WINDOW):
                shut.add(str(link.connection.number))  # applies to all links of the connection
            continue
        senders.add(link)
        _add_link(found[record.id], link, counters, stall, limit)
        if stall is not None:
            stalls.setdefault((record.id, link.consumer), []).append(stall)
        role = link.connection.origin.role
        if link.consumer and link.connection.container and role in (roles.EDGE, roles.INTER_EDGE):
            further[link.connection.container] = role == roles.INTER_EDGE or not edge
    for row in found.values():
        for remote in row["remotes"]:
            remote["stalled"] = bool(remote["connections"]) and shut.issuperset(remote["connections"])
    return further


def _is_beyond(link: RegisteredLink, hops: set[str], routed: str | None) -> bool:
    """Return whether a link without record carries messages to the address: to a next hop, or by a link route."""
    if link.kind == DATA:
        return link.consumer and str(link.connection.number) in hops
    return routed is not None and link.routed_to is not None and normalise(link.routed_to) == routed


def _add_link(
    row: dict[str, Any], link: RegisteredLink, counters: dict[str, Any], stall: LinkStall | None, limit: int
) -> None:
    since = counters["blocked_since"]
    waits = (time.monotonic_ns() - since) / 1e9 if since else None
    kind = "consumer" if link.consumer else "producer"
    row[f"{kind}Count"] += 1
    if link.consumer:
        if counters["unsettled"]:
            row["holders"].append((counters["unsettled"], link.connection))
        if counters["stuck"]:
            row["deliveriesStuck"] += counters["stuck"]
            row["stuckConsumers"].append((counters["stuck"], link.connection))
        row["deliveriesWaiting"] += counters["undelivered"]
        row["consumersAble"] += stall is None
        if waits is None:
            row["consumersWithCredit"] += 1
        else:
            row["longestWithoutCreditSeconds"] = max(row["longestWithoutCreditSeconds"] or 0.0, waits)
    links = row[f"{kind}s"]
    if len(links) >= limit:
        return
    connection = link.connection
    links.append(
        {
            "identity": str(link.identity),
            "name": link.name,
            "connection": str(connection.number),
            "container": connection.container,
            "host": connection.peer,
            "user": connection.user,
            "worker": link.worker,
            **{title: counters[name] for title, name in _LINK_COUNTERS.items()},
            "capacityAdapts": not link.consumer and not connection.origin.values.get("linkCapacity"),
            "stuck": counters["stuck"],
            "withoutCreditSeconds": waits,
            "stall": None if stall is None else stall.reason.value,
            "stallText": None if stall is None else stall.text,
            "stallSeconds": None if stall is None else stall.seconds,
        }
    )


# Verdict


def _verdict(
    cls: str, name: str, setting: AddressSetting | None, records: list[dict[str, Any]], *, alone: bool
) -> dict[str, Any]:
    """Return whether a message would be delivered, and the reasons."""
    if cls == ROUTER and records and records[0]["remotes"]:
        return _verdict_elsewhere(records[0])
    elsewhere = cls in (ROUTER, AREA, EDGE)
    if elsewhere and not (records and (records[0]["remotes"] or records[0]["consumerCount"])):
        kind = {ROUTER: "router", AREA: "area", EDGE: "edge router"}[cls]
        why = ": it is not part of a network" if alone else ""
        return _unreachable_verdict(
            f"{kind} unknown", f"It is an address of {kind} '{name}', unknown to this router{why}"
        )
    phase = "0" if setting is None else str(setting.ingress_phase)
    by_phase = {record["phase"]: record for record in records}
    record = by_phase.get(phase if cls == MOBILE else None)
    if setting is not None and setting.distribution == UNAVAILABLE and record is None:
        return _unreachable_verdict(
            UNAVAILABLE, "Its distribution is 'unavailable': clients that attach are refused with amqp:not-found"
        )
    if record is None:
        return _verdict_without_consumers(records, setting)
    if record["inProcess"]:
        return _reachable_verdict("The router itself consumes its messages")
    if record["exchange"] is not None:
        exchange = record["exchange"]
        return _reachable_verdict(
            f"Messages go through exchange '{exchange['name']}' and its bindings ({exchange['bindingCount']})"
        )
    if record["treatment"] == UNAVAILABLE and not record["consumerCount"] and not record["remotes"]:
        return _unreachable_verdict(UNAVAILABLE, "Its distribution is 'unavailable' now: messages are not routed")
    if record["consumerCount"] or record["remotes"]:
        return _verdict_with_consumers(record)
    fallback = by_phase.get(FALLBACK_PHASE)
    if record["fallback"] is not None and fallback is not None and (fallback["consumerCount"] or fallback["remotes"]):
        verdict = _verdict_with_consumers(fallback)
        verdict["findings"].insert(0, "It has no consumer: messages go to its fallback consumers")
        return verdict
    return _verdict_without_consumers(records, setting)


def _verdict_without_consumers(records: list[dict[str, Any]], setting: AddressSetting | None) -> dict[str, Any]:
    """Return the verdict for an address without consumers at its ingress phase."""
    phase = 0 if setting is None else setting.ingress_phase
    others = [record for record in records if record["consumerCount"] and record["phase"] != FALLBACK_PHASE]
    if not any(record["consumerCount"] or record["producerCount"] for record in records):
        text = "Not in use: no consumer, no producer. A producer may attach; it gets credit when a consumer attaches"
        return _unreachable_verdict("not in use", text)
    if others:
        phases = ", ".join(record["phase"] for record in others)
        text = f"Messages enter at phase {phase}, which has no consumers; there are consumers at phase {phases}"
        return _unreachable_verdict(f"no consumer at phase {phase}", text)
    producers = sum(record["producerCount"] for record in records)
    text = (
        f"No consumer: its producers ({producers}) get no credit; messages sent with earlier credit, or on anonymous"
        " links, are released, and dropped if they were sent settled"
    )
    return _unreachable_verdict("no consumer", text)


def _verdict_with_consumers(record: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict for a record with consumers, at this or other routers."""
    if not record["remotes"]:
        return _verdict_here(record)
    beyond = _verdict_elsewhere(record)
    if not record["consumerCount"]:
        return beyond
    here = _verdict_here(record)
    findings = here["findings"] + beyond["findings"]
    if here["reachable"]:
        return {**here, "findings": findings}
    return {**beyond, "verdict": f"{here['verdict']}; {beyond['verdict']}", "findings": findings}


def _verdict_elsewhere(record: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict for consumers at other routers."""
    ways = []
    for remote in record["remotes"][:_WAYS]:
        if remote["nextHop"] is None:
            ways.append(f"{remote['router']} (no path)")
        else:
            by = "" if remote["nextHop"] == remote["router"] else f" through {remote['nextHop']}"
            ways.append(f"{remote['router']}{by} (cost {remote['cost']})")
    count = record["remoteCount"]
    more = f" and {count - len(ways)} more" if count > len(ways) else ""
    routers = "another router" if count == 1 else f"{count} other routers"
    text = f"Consumers at {routers}: {', '.join(ways)}{more}"
    reachable = any(remote["nextHop"] is not None for remote in record["remotes"])
    if not reachable:
        waits = [each["awaitedSeconds"] for each in record["remotes"] if each["awaitedSeconds"] is not None]
        if waits and not record["consumerCount"] and record["fallback"] is None:
            text += f". Messages wait for a path up to {max(waits):.0f} s more"
        return _unreachable_verdict("no path to its consumers", f"No path to its consumers. {text}")
    if all(remote["stalled"] for remote in record["remotes"] if remote["nextHop"] is not None):
        return _unreachable_verdict(f"stalled: no path to {routers} accepts messages ({StallWord.HOP})", text)
    return {**_reachable_verdict(text), "verdict": f"reachable at {routers}"}


def _verdict_here(record: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict for a record with consumers at this router."""
    count, able = record["consumerCount"], record["consumersAble"]
    waits = record["longestWithoutCreditSeconds"]
    consumers = "1 consumer" if count == 1 else f"{count} consumers"
    who = _stall_findings(record["stalls"])
    reasons = {stall.reason for stall in record["stalls"]}
    if not able and reasons == {StallWord.CREDIT}:
        verdict = f"no credit: {consumers} {'withholds' if count == 1 else 'withhold'} it"
        summary = f"No credit: {consumers}, none grants credit, the longest for {waits:.0f} s"
        return _unreachable_verdict(verdict, summary, *who)
    if not able:
        words = ", ".join(sorted(reasons))
        return _unreachable_verdict(f"stalled: {consumers}, none takes messages ({words})", *who)
    if able < count and reasons == {StallWord.CREDIT}:
        taken = _reachable_verdict(f"{able} of {consumers} grant credit; the longest without any: {waits:.0f} s", *who)
    elif able < count:
        taken = _reachable_verdict(f"{able} of {consumers} can take messages", *who)
    else:
        taken = _reachable_verdict(f"{consumers} with credit")
    if stuck := record["deliveriesStuck"]:
        deliveries = "1 delivery is" if stuck == 1 else f"{stuck} deliveries are"
        taken["verdict"] = f"{deliveries} stuck"
        taken["findings"].append(f"{deliveries} stuck: consumers have them, or are to get them, and do not settle them")
        holders = heapq.nlargest(_STALLS, record["stuckConsumers"], key=lambda each: each[0])
        taken["findings"] += [_capital(f"{peer_of(connection)} has {count} of them") for count, connection in holders]
        if len(record["stuckConsumers"]) > _STALLS:
            taken["findings"].append(f"… and {len(record['stuckConsumers']) - _STALLS} more")
    elif record["holders"]:
        # Deliveries are stuck only after ten seconds and the next check, but their senders wait already.
        unsettled = sum(held for held, _ in record["holders"])
        most, connection = max(record["holders"], key=lambda each: each[0])
        deliveries = "1 delivery waits" if unsettled == 1 else f"{unsettled} deliveries wait"
        which = f"{most} of them" if most < unsettled else "it" if unsettled == 1 else "them"
        taken["findings"].append(f"{deliveries} for the outcome of a consumer: {peer_of(connection)} has {which}")
    return taken


def _stall_findings(stalls: list[LinkStall]) -> list[str]:
    """Return findings about stalls, the longest first. Stalls of one connection with the same reason appear once."""
    named: dict[str, LinkStall] = {}
    for stall in sorted(stalls, key=lambda stall: -stall.seconds):
        named.setdefault(stall.text, stall)
    more = [f"… and {len(named) - _STALLS} more"] if len(named) > _STALLS else []
    return [_capital(stall.described) for stall in list(named.values())[:_STALLS]] + more


def _other_stall_findings(stalls: Stalls) -> list[str]:
    """Return findings about all stalls except those of consumers, which the verdict has.

    Producers without a consumer are also in the verdict.
    """
    found = [
        stall for (record, consumer), each in stalls.items() if record == _BEYOND or not consumer for stall in each
    ]
    return _stall_findings([stall for stall in found if stall.reason != StallWord.NO_CONSUMER])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _reachable_verdict(*findings: str) -> dict[str, Any]:
    return {"reachable": True, "verdict": "reachable", "findings": list(findings)}


def _unreachable_verdict(verdict: str, *findings: str) -> dict[str, Any]:
    return {"reachable": False, "verdict": verdict, "findings": list(findings)}
