"""EXPLAIN along a path: the router asks the other routers, and trusts neither them nor its client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.management import explain_path, remote
from sluice.supervisor.management.request import decode
from sluice.supervisor.management.response import Response, encode
from tests.peer.management import ManagementReply
from tests.unit.supervisor.management.managed_router import ManagedRouter, request
from tests.unit.supervisor.policy.test_policy import OPEN, text, vhost

CLIENT = "amqp:/_topo/0/QDR/temp.x"
TOO_OLD = "Only Sluice routers explain addresses: this one is no Sluice, or too old"


def explained(
    remotes: dict[str, str | None] | None = None, further: dict[str, bool] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a router's explanation of an address. remotes: next hop by destination router. further: True for each
    router behind an edge connection that is an edge router."""
    hops = [{"router": goal, "nextHop": following} for goal, following in (remotes or {}).items()]
    return {
        "address": "a", "class": "mobile", "reachable": True, "findings": [], "setting": None,
        "records": [{"remotes": hops, "consumers": [], "producers": []}],
        "further": [{"router": name, "edge": edge} for name, edge in (further or {}).items()], **fields,
    }  # fmt: skip


class ExplainedNetwork:
    """Router QDR, and the answers of the others by their id. `asked`: addresses of its requests to them."""

    def __init__(self, router: ManagedRouter | None = None, /, **answers: Any) -> None:
        self.router = router or ManagedRouter()
        self.answers = answers
        self.silent: set[str] = set()
        self.asked: list[str] = []

    def begin(self, first: str | None = "_topo/0/A/$management", connection: int | None = None, **more: Any) -> None:
        """Send the request of a client."""
        properties = {"operation": "EXPLAIN", "address": "a", "path": True, **more}
        properties |= {} if first is None else {"first": first}
        self.router.sent.clear()
        self.router.agent.handle(LocalMessage(1, connection, request(properties, {})))

    def explain(self, *given: Any, **more: Any) -> ManagementReply:
        """Send the request of a client, answer those of the router, and return its answer."""
        self.begin(*given, **more)
        while True:
            sent, self.router.sent[:] = list(self.router.sent), []
            for to, octets, _ in sent:
                if to == CLIENT:
                    return ManagementReply.of(octets)
                self.asked.append(to)
                self._answer(to.split("/")[1 if to.startswith("_edge/") else 2], octets)
            self.router.finish()
            self.router.loop.run_until_complete(asyncio.sleep(0))

    def _answer(self, router: str, octets: bytes) -> None:
        asked = decode(0, None, octets)
        assert (asked.operation, asked.text("address"), asked.properties.get("path")) == ("EXPLAIN", "a", None)
        if router in self.silent:
            return
        found = self.answers.get(router)
        if isinstance(found, dict):
            found = {"router": router, **found}
        answer = Response(501, description="no such operation") if found is None else Response.of(200, found)
        assert asked.reply_to is not None
        self.router.agent.handle(LocalMessage(0, 7, encode(answer, asked.reply_to, asked.correlation_id)))

    def paths(self, *given: Any) -> list[list[str]]:
        answer = self.explain(*given)
        assert answer.outcome == (200, "OK")
        found: list[list[str]] = answer.body["ways"]
        return found


def errors(answer: ManagementReply) -> dict[str, str]:
    """Return the errors of routers by their id."""
    return {each["router"]: each["error"] for each in answer.body["routers"] if "error" in each}


def test_routers_on_path_are_asked_once() -> None:
    network = ExplainedNetwork(
        A=explained({"C": "B", "D": "B"}), B=explained({"C": "C", "D": "C"}), C=explained({"D": "D"}), D=explained()
    )
    answer = network.explain()
    assert answer.body["ways"] == [["A", "B", "C"], ["A", "B", "C", "D"]]
    assert network.asked == [f"_topo/0/{router}/$management" for router in "ABCD"]
    assert [each["router"] for each in answer.body["routers"]] == ["A", "B", "C", "D"]


def test_broken_or_looping_path_ends() -> None:
    assert ExplainedNetwork(A=explained({"C": "B", "D": None}), B=explained({"C": "A"})).paths() == [["A", "B"], ["A"]]


def test_path_leads_from_edge_router_to_other_edge_router() -> None:
    network = ExplainedNetwork(
        E=explained(further={"A": False, "F": True}, reachable=None), F=explained(),
        A=explained({"B": "B"}, {"E": True}), B=explained(further={"G": True}), G=explained(further={"B": False}),
    )  # fmt: skip
    assert network.paths("_edge/E/$management") == [["E", "A"], ["E", "A", "B"], ["E", "F"], ["E", "A", "B", "G"]]
    asked = ["_edge/E", "_topo/0/A", "_edge/F", "_topo/0/B", "_edge/G"]
    assert network.asked == [f"{place}/$management" for place in asked]


def test_router_without_the_operation_is_reported() -> None:
    answer = ExplainedNetwork(A=explained({"B": "B"})).explain()
    assert (answer.body["ways"], errors(answer)) == ([["A", "B"]], {"B": TOO_OLD})


def test_answer_of_older_version_leads_to_no_edge_routers() -> None:
    answer = explained()
    del answer["further"]
    assert ExplainedNetwork(A=answer).paths() == []


def test_own_router_answers_without_a_request() -> None:
    network = ExplainedNetwork()
    for first in (None, "_topo/0/QDR/$management", "_edge/QDR/$management"):
        (answer,) = network.explain(first).body["routers"]
        assert (answer["router"], answer["verdict"]) == ("QDR", "not in use")
    assert network.asked == []


@pytest.mark.parametrize("first", ["_local/$management", "_topo/0/A/x", "_topo/0/all/$management", "orders"])
def test_first_router_without_agent_address_is_refused(first: str) -> None:
    assert ExplainedNetwork(A=explained()).explain(first).status == 400


def test_first_router_outside_the_network_is_not_found() -> None:
    network = ExplainedNetwork()
    network.router.reachable = False
    assert network.explain("_topo/0/NOPE/$management").outcome == (404, "router 'NOPE' is not in the network")


def test_silent_router_is_reported_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_path, "ANSWER_SECONDS", 0.01)
    network = ExplainedNetwork(A=explained({"B": "B"}))
    network.silent = {"B"}
    assert errors(network.explain()) == {"B": "router 'B' gives no answer in time"}
    network.silent = {"A"}
    assert network.explain().outcome == (500, "router 'A' gives no answer in time")
    monkeypatch.setattr(explain_path, "PATH_SECONDS", 0)
    assert network.explain().description.startswith("not asked: ")


@pytest.mark.parametrize("answer", [[], {}, explained(findings="x"), explained(records=[{"remotes": [{"router": 1}]}])])
def test_invalid_answer_is_reported(answer: Any) -> None:
    (text,) = errors(ExplainedNetwork(A=explained({"B": "B"}), B=answer).explain()).values()
    assert text.startswith("its answer is invalid: ")


@pytest.mark.parametrize("name", ["", "B/x", "all", "x" * 1000])
def test_invalid_router_id_in_answer_is_ignored(name: str) -> None:
    network = ExplainedNetwork(A=explained({name: "B", "C": name}, {name: True}))
    assert network.paths() == []
    assert network.asked == ["_topo/0/A/$management"]


def test_answer_of_another_router_is_reported() -> None:
    answer = ExplainedNetwork(A=explained({"B": "B"}), B=explained(router="A")).explain()
    assert errors(answer) == {"B": "its answer is that of another router"}


def test_large_answers_lose_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    large = explained({"B": "B"})
    large["records"][0]["consumers"] = [{"name": "x" * 100}] * 100
    monkeypatch.setattr(explain_path, "_ANSWER_VALUES", 500)
    answer = ExplainedNetwork(A=large, B=large).explain()
    assert [len(each["records"][0]["consumers"]) for each in answer.body["routers"]] == [100, 0]
    large["findings"] = ["x"] * 500
    assert list(errors(ExplainedNetwork(A=explained({"B": "B"}), B=large).explain())) == ["B"]


def test_octets_of_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_path, "MOST_OCTETS", 5_000)
    answer = ExplainedNetwork(A=explained({"B": "B"}), B=explained(findings=["x" * 5_000])).explain()
    assert errors(answer) == {"B": "all answers about the path have over 5000 octets"}


def test_number_of_routers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_path, "MOST_ROUTERS", 3)
    hops: dict[str, str | None] = {router: router for router in "BCDE"}
    answer = ExplainedNetwork(A=explained(hops), **dict.fromkeys("BCDE", explained())).explain()
    assert list(errors(answer)) == ["D", "E"]


def test_answer_needs_the_correlation_id_of_the_request() -> None:
    network = ExplainedNetwork(A=explained())
    network.begin()
    forged = encode(Response.of(200, explained({"X": "X"})), "_topo/0/QDR/$management", b"\xa1\x01a")
    network.router.agent.handle(LocalMessage(0, 8, forged))
    assert [to for to, _, _ in network.router.sent] == ["_topo/0/A/$management"]


def test_paths_of_a_client_are_bounded() -> None:
    network = ExplainedNetwork(A=explained())
    connection, other = (network.router.connection().number for _ in range(2))
    for _ in range(remote.MOST_PATHS_OF_CLIENT):
        network.begin(connection=connection)
    answer = network.explain(connection=connection)
    assert answer.outcome == (500, "At most 2 paths are followed at a time for a client, 16 for all")
    for _ in range(remote.MOST_PATHS_OF_CLIENT + 1):
        assert network.explain(connection=other).status == 200


def test_long_request_is_refused() -> None:
    assert ExplainedNetwork(A=explained()).explain(padding="x" * explain_path.MOST_REQUEST_OCTETS).status == 400


def router_with_rules(**rules: Any) -> ManagedRouter:
    """Return a router whose clients have these rules."""
    return ManagedRouter(text=text(vhost({"g": {**OPEN, **rules}}), policyVhost="v"))


def test_policy_of_the_client_decides_which_routers_are_asked() -> None:
    router = router_with_rules(targets="$management,_topo/0/A/$management,_topo/0/B/$management")
    network = ExplainedNetwork(router, A=explained({"B": "B", "C": "C"}, {"F": True}), B=explained(), C=explained())
    answer = network.explain(connection=router.connection().number)
    assert network.asked == ["_topo/0/A/$management", "_topo/0/B/$management"]
    text = "Policy forbids messages to '{}/$management'"
    assert errors(answer) == {"C": text.format("_topo/0/C"), "F": text.format("_edge/F")}
    number = router.connection().number
    assert network.explain("_topo/0/C/$management", number).status == 403


def test_requests_have_the_role_of_the_client() -> None:
    router = router_with_rules(management="read")
    network = ExplainedNetwork(router, A=explained({"B": "B"}), B=explained())
    assert network.explain(connection=router.connection().number).status == 200
    assert network.asked == ["_topo/0/A/$management/read", "_topo/0/B/$management/read"]


def test_client_of_another_router_is_referred_to_it() -> None:
    listener = "listener {\n    host: 127.0.0.1\n    port: 0\n    role: inter-router\n}\n"
    router = ManagedRouter(text=f"router {{\n    id: QDR\n    mode: interior\n}}\n{listener}")
    connection = router.connection()
    answer = ExplainedNetwork(router, A=explained()).explain(connection=connection.number)
    assert answer.outcome == (403, "A path is followed by the router that the client is connected to")
