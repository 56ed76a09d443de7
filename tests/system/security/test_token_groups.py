"""Policy groups named by a claim of a token (security.md P-13)."""

from __future__ import annotations

from pathlib import Path

from sluice.router.client.message import Message, decode
from tests.peer.logins import token
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import listener
from tests.system.security.tokens import Renewal, issuer, open_with

CLIENT = {"remoteHosts": "*", "allowDynamicSource": True}
SECTIONS = [
    listener(),
    listener("tokens", tokenIssuers="id", authenticatePeer=True),
    ("policy", {"enableVhostPolicy": True}),
    ("vhost", {"hostname": "kept", "groups": {
        "writers": {**CLIENT, "targets": "$cbs, orders"},
        "readers": {**CLIENT, "targets": "$cbs", "sources": "orders"},
    }}),
    ("vhost", {"hostname": "closing", "onChange": "close", "groups": {
        "writers": {**CLIENT, "targets": "$cbs, orders"},
        "readers": {**CLIENT, "targets": "$cbs"},
    }}),
    ("vhost", {"hostname": "$default", "groups": {"all": {**CLIENT, "users": "*", "targets": "*", "sources": "*"}}}),
]  # fmt: skip
DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")
UNAUTHORIZED = ("amqp:unauthorized-access", "link disallowed by local policy")


def test_token_claims_select_policy_groups(start: Start, tmp_path: Path, peers: list[AmqpPeer]) -> None:
    router = start([*SECTIONS, issuer(tmp_path, groupClaim="roles")], 2)

    def client(hostname: str, *roles: str) -> AmqpPeer:
        peer = AmqpPeer(router.ports["tokens"])
        peers.append(peer)
        return open_with(peer, token(roles=list(roles)), hostname)

    # Replies are sent only to addresses that the client may send to or receive from.
    observer = AmqpPeer.opened(router.port)
    peers.append(observer)
    prices, orders = observer.receiver("prices", 10), observer.receiver("orders", 10)
    writer = client("kept", "writers")
    renewal = Renewal(writer)
    renewal.ask("x", "nonsense", reply_to="prices")
    renewal.ask("x", "nonsense", reply_to="orders")
    assert renewal.put("x", "nonsense")[0] == 400
    assert decode(orders.next().payload).properties["status-code"] == 400
    sender = observer.sender("prices")
    sender.send(Message("the first").encode(), settled=True)
    assert decode(prices.next().payload).body == "the first"
    observer.close()

    assert client("kept", "writers").sender("orders", credit=False).target["address"] == "orders"
    reader = client("kept", "readers")
    assert reader.sender("orders", credit=False).wait_detached() == UNAUTHORIZED
    reader.receiver("orders")
    assert client("kept").expect_close() == DENIED

    kept = client("kept", "writers")
    assert Renewal(kept).put(token(roles=["readers"])) == (202, "Accepted")
    assert kept.sender("orders", credit=False).target["address"] == "orders"

    closing = client("closing", "writers")
    link = closing.sender("orders", credit=False)
    renewal = Renewal(closing)
    assert renewal.put(token(roles=["writers"])) == (202, "Accepted")
    assert renewal.put(token(roles=["readers"])) == (202, "Accepted")
    assert link.wait_detached() == UNAUTHORIZED
