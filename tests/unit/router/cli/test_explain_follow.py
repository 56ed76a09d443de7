"""`sluice explain` follows an address from router to router."""

from router.cli.client import ManagementError
from router.cli.explain import follow, taken


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


class Network:
    """Explanations by router id. `asked` lists the routers that were queried."""

    def __init__(self, *answers):
        self.answers = {answer["router"]: answer for answer in answers}
        self.asked = []

    def follow(self, first):
        def ask(router, edge):
            self.asked.append(f"edge {router}" if edge else router)
            if router not in self.answers:
                raise ManagementError("501 no such operation")
            return self.answers[router]

        return {**self.answers[first], **follow(self.answers[first], ask)}


def test_each_router_on_the_way_is_asked_once():
    network = Network(
        explained("A", {"C": "B", "D": "B"}),
        explained("B", {"C": "C", "D": "C"}),
        explained("C", {"D": "D"}, credit=1),
        explained("D", credit=1),
    )
    answer = network.follow("A")
    assert answer["ways"] == [["A", "B", "C"], ["A", "B", "C", "D"]]
    assert network.asked == ["B", "C", "D"]
    assert set(answer["routers"]) == {"B", "C", "D"}
    assert taken(answer)


def test_a_way_that_breaks_off_or_goes_round_ends():
    network = Network(explained("A", {"C": "B", "D": None}), explained("B", {"C": "A"}))
    assert network.follow("A")["ways"] == [["A", "B"], ["A"]]


def test_a_router_that_cannot_be_asked_is_told_and_counts_as_taking():
    network = Network(explained("A", {"B": "B"}))
    answer = network.follow("A")
    assert answer["ways"] == [["A", "B"]]
    assert answer["routers"] == {"B": {"error": "501 no such operation"}}
    assert taken(answer)


def test_what_nobody_takes_at_the_end_of_all_ways_is_not_taken():
    network = Network(explained("A", {"B": "B"}), explained("B", reachable=False))
    assert not taken(network.follow("A"))


def test_what_is_taken_here_is_taken():
    network = Network(explained("A", {"B": "B"}, credit=1), explained("B", reachable=False))
    assert taken(network.follow("A"))


def test_from_an_edge_router_over_its_uplink_and_down_to_another():
    network = Network(
        explained("E", reachable=None, further={"A": False, "F": True}),
        explained("F", credit=1),
        explained("A", {"B": "B"}, further={"E": True}),
        explained("B", further={"G": True}),
        explained("G", credit=1, further={"B": False}),
    )
    answer = network.follow("E")
    assert answer["ways"] == [["E", "A"], ["E", "A", "B"], ["E", "F"], ["E", "A", "B", "G"]]
    assert network.asked == ["A", "B", "edge F", "edge G"]
    assert taken(answer)


def test_what_an_edge_router_does_not_know_its_interior_does():
    nobody = Network(explained("E", reachable=None, further={"A": False}), explained("A", reachable=False))
    assert not taken(nobody.follow("E"))
    silent = Network(explained("E", reachable=None, further={"A": False}))
    assert not taken(silent.follow("E"))


def test_routers_of_an_older_version_know_nothing_further():
    answer = explained("A")
    del answer["further"]
    assert follow(answer, lambda router, edge: {})["ways"] == []
