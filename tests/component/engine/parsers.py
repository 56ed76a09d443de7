"""Fuzz targets for everything that parses octets or text from outside.

Each target swallows the errors that its parser may raise; any other exception is a fault. Cases: `{"octets": hex}`.
"""

from array import array
from typing import Any

from sluice.pipeline.decode import COLUMNS
from sluice.pipeline.decode import decode as decode_columns
from sluice.router import json_codec
from sluice.router.addressing.address import classify, key, normalise
from sluice.router.addressing.pattern import PatternError, PatternTree, from_prefix
from sluice.router.amqp.codec import decode, described_list, fields
from sluice.router.amqp.errors import RemoteError
from sluice.router.amqp.sasl import Anonymous, SaslServer
from sluice.router.client import outcome as outcomes
from sluice.router.config.errors import ConfigError
from sluice.router.config.jsontext import JsonReader, JsonSyntaxError
from sluice.router.config.load import load_text
from sluice.router.policy.hosts import HostError, HostRules, known
from sluice.router.policy.names import NameList, NamePatterns
from sluice.router.testing.frames import disposition_dict, equal_span, flow_dict, transfer_dict
from sluice.router.testing.message import rewrite_annotations, scan_dict
from sluice.router.testing.trace_context import read_context, replace_context
from sluice.workers.links.terminus import PeerTerminus
from tests.unit.router.policy.naive import listed, matched

Case = dict[str, Any]
TRACE_ID, SPAN_ID = b"T" * 16, b"S" * 8
FEW_PAIRS = 30
ANNOTATED = 2  # SCAN_TRUNCATED; higher results are refusals


def octets_of(case: Case) -> bytes:
    return bytes.fromhex(case["octets"])


def codec(case: Case) -> None:
    octets = octets_of(case)
    try:
        _, end = decode(octets)
    except RemoteError:
        pass
    else:
        assert 0 < end <= len(octets)
        assert equal_span(octets[:end]), "what is decoded can be skipped"
    for reader in (fields, described_list, PeerTerminus):
        try:
            reader(octets)
        except RemoteError:
            pass


def outcome(case: Case) -> None:
    """Decode a delivery state as the client does, which settles deliveries and ends transactions by it."""
    try:
        found = outcomes.decode(octets_of(case))
    except RemoteError:
        return
    if isinstance(found, outcomes.Declared | outcomes.Transactional):
        assert 1 <= len(found.txn_id) <= outcomes.TXN_ID_MOST
        inner = found.outcome if isinstance(found, outcomes.Transactional) else None
        if not isinstance(inner, outcomes.Modified):  # its annotations may have types that the client does not send
            assert outcomes.decode(outcomes.encode(found)) == found


def performatives(case: Case) -> None:
    octets = octets_of(case)
    for reader in (transfer_dict, flow_dict, disposition_dict):
        try:
            reader(octets)
        except RemoteError:
            pass


def message(case: Case) -> None:
    octets = octets_of(case)
    for properties in (False, True):
        for honour in (False, True):
            result, found = scan_dict(octets, properties, honour)
            assert 0 <= found["at"] <= found["end"] <= len(octets) or result >= ANNOTATED
    for router in (False, True):
        out = rewrite_annotations(octets, router=router, honour=True, to=b"\xa1\x01x", phase=1)
        if out is not None and router:  # otherwise a second annotations section may have appeared
            again = rewrite_annotations(out, router=False, honour=True)
            assert again is not None, f"what we wrote cannot be read: {out.hex()}"


def trace_context(case: Case) -> None:
    """Read the trace context of the octets, and write the context of a span into them."""
    octets = octets_of(case)
    found = read_context(octets)
    if found is not None:
        assert any(found[0]), "a trace id of zeros is invalid"
        assert any(found[1]), "a parent id of zeros is invalid"
    replaced = replace_context(octets, TRACE_ID, SPAN_ID)
    if replaced is None:
        return
    written, room = replaced
    assert len(written) <= room
    _, before = scan_dict(octets, True, False)
    result, _ = scan_dict(written, True, False)
    assert result == 0, f"what we wrote cannot be read: {written.hex()}"
    if before["pairs"] < FEW_PAIRS:  # pairs behind the first PAIRS_MOST of context.pxd are not read
        again = read_context(written)
        assert again is not None
        assert again[:3] == (TRACE_ID, SPAN_ID, True)


def columns(case: Case) -> None:
    """Decode the octets, and parts of them, as messages of a table."""
    octets = octets_of(case)
    size = len(octets)
    ends = array("i", [0, size // 3, size // 3, size])
    found = decode_columns(ends, octets, 0, len(ends) - 1, list(COLUMNS))
    assert set(found) == set(COLUMNS)


def sasl(case: Case) -> None:
    octets = octets_of(case)
    server = SaslServer({"ANONYMOUS": Anonymous})
    server.begin()
    at = 0
    while at < len(octets) and not server.done:
        size = octets[at]
        try:
            server.step(octets[at + 1 : at + 1 + size])
        except RemoteError:
            break
        at += 1 + size


def config(case: Case) -> None:
    text = octets_of(case).decode("utf-8", "replace")
    for path in ("router.conf", "router.json"):
        try:
            load_text(path, text)
        except ConfigError:
            pass


def json_document(case: Case) -> None:
    """The reader of configuration files accepts no document that the codec refuses, and agrees about all values."""
    octets = octets_of(case)
    try:
        value = json_codec.decode(octets)
    except json_codec.JsonError:
        value = None
        accepted = False
    else:
        accepted = True
        assert json_codec.decode(json_codec.encode(value)) == value
        assert json_codec.decode(json_codec.encode_ascii(value)) == value
    try:
        read = JsonReader(octets.decode("utf-8"), spare_commas=False).document().plain()
    except (UnicodeDecodeError, JsonSyntaxError):
        return
    if b"#" not in octets:  # comment lines are an extension of that reader
        assert accepted
        assert json_codec.decode(json_codec.encode(read)) == value


def address(case: Case) -> None:
    text = octets_of(case).decode("utf-8", "replace")
    for mode in ("standalone", "interior", "edge"):
        cls, name = classify(normalise(text), "QDR", mode)
        assert key(cls, name)
    tree: PatternTree[int] = PatternTree()
    for number, pattern in enumerate(text.split("\n")[:8]):
        for made in (lambda pattern=pattern: pattern, lambda pattern=pattern: from_prefix(pattern)):
            try:
                tree.insert(made(), number)
            except PatternError:
                pass
    tree.match(text)
    for pattern, _ in list(tree.items()):
        tree.remove(pattern)
    assert len(tree) == 0


def policy(case: Case) -> None:
    """Check that compiled name rules agree with the naive ones. Hosts that are invalid are refused."""
    user, address, *items = [*octets_of(case).decode("utf-8", "replace").split("\n"), "", ""]
    assert NameList(items).permits(address, user) == listed(items, address, user)
    assert NamePatterns(items).permits(address, user) == matched(items, address, user)
    hosts = []
    for item in items:
        try:
            HostRules([item], known({}))
        except HostError:
            continue
        hosts.append(item)
    alone = [HostRules([host], known({})).allows(address) for host in hosts]
    assert HostRules(hosts, known({})).allows(address) == any(alone)
