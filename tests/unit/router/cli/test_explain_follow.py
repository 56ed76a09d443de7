"""`sluice explain` follows an address from router to router."""

from router.cli.client import ManagementError
from router.cli.explain import follow_paths, is_deliverable


def explained(router, remotes=None, *, reachable=True, credit=0, further=None):
    """Return a router's explanation of an address. remotes: next hop by destination router. further: True for each
    router behind an edge connection that is an edge router."""
    return {
        "router": router,
        "reachable": reachable,
        "further": [{"router": name, "edge": edge} for name, edge in (further or {}).items()],
        "records": [
            {
                "consumersWithCredit": credit,
                "inProcess": False,
                "remotes": [{"router": goal, "nextHop": following} for goal, following in (remotes or {}).items()],
            }
        ],
    }


class ExplainedNetwork:
    """Explanations by router id. `queried` lists the routers that were queried."""

    def __init__(self, *answers):
        self.answers = {answer["router"]: answer for answer in answers}
        self.queried = []

    def follow(self, first):
        def query(router, edge):
            self.queried.append(f"edge {router}" if edge else router)
            if router not in self.answers:
                raise ManagementError("501 no such operation")
            return self.answers[router]

        return {**self.answers[first], **follow_paths(self.answers[first], query)}


def test_routers_on_path_are_queried_once():
    network = ExplainedNetwork(
        explained("A", {"C": "B", "D": "B"}),
        explained("B", {"C": "C", "D": "C"}),
        explained("C", {"D": "D"}, credit=1),
        explained("D", credit=1),
    )
    answer = network.follow("A")
    assert answer["ways"] == [["A", "B", "C"], ["A", "B", "C", "D"]]
    assert network.queried == ["B", "C", "D"]
    assert set(answer["routers"]) == {"B", "C", "D"}
    assert is_deliverable(answer)


def test_broken_or_looping_path_ends():
    network = ExplainedNetwork(explained("A", {"C": "B", "D": None}), explained("B", {"C": "A"}))
    assert network.follow("A")["ways"] == [["A", "B"], ["A"]]


def test_unreachable_router_is_reported_and_counts_as_taking():
    network = ExplainedNetwork(explained("A", {"B": "B"}))
    answer = network.follow("A")
    assert answer["ways"] == [["A", "B"]]
    assert answer["routers"] == {"B": {"error": "501 no such operation"}}
    assert is_deliverable(answer)


def test_address_without_taker_on_any_path_is_not_taken():
    network = ExplainedNetwork(explained("A", {"B": "B"}), explained("B", reachable=False))
    assert not is_deliverable(network.follow("A"))


def test_address_taken_at_first_router_is_taken():
    network = ExplainedNetwork(explained("A", {"B": "B"}, credit=1), explained("B", reachable=False))
    assert is_deliverable(network.follow("A"))


def test_path_leads_from_edge_router_to_other_edge_router():
    network = ExplainedNetwork(
        explained("E", reachable=None, further={"A": False, "F": True}),
        explained("F", credit=1),
        explained("A", {"B": "B"}, further={"E": True}),
        explained("B", further={"G": True}),
        explained("G", credit=1, further={"B": False}),
    )
    answer = network.follow("E")
    assert answer["ways"] == [["E", "A"], ["E", "A", "B"], ["E", "F"], ["E", "A", "B", "G"]]
    assert network.queried == ["A", "B", "edge F", "edge G"]
    assert is_deliverable(answer)


def test_interior_router_decides_for_edge_router():
    nobody = ExplainedNetwork(explained("E", reachable=None, further={"A": False}), explained("A", reachable=False))
    assert not is_deliverable(nobody.follow("E"))
    silent = ExplainedNetwork(explained("E", reachable=None, further={"A": False}))
    assert not is_deliverable(silent.follow("E"))


def test_older_routers_give_no_further_routers():
    answer = explained("A")
    del answer["further"]
    assert follow_paths(answer, lambda router, edge: {})["ways"] == []
