"""Exit code of `sluice explain`: whether an answer says that a message would be delivered."""

from typing import Any

import pytest

from sluice.router.cli.explain import is_deliverable


@pytest.mark.parametrize(
    ("reachable", "credit", "end", "deliverable"),
    [
        (True, 0, {"reachable": True}, True),
        (True, 0, {"error": "no such operation"}, True),
        (True, 0, {"reachable": False}, False),
        (True, 1, {"reachable": False}, True),
        (None, 0, {"reachable": True}, True),
        (None, 0, {"reachable": False}, False),
        (None, 0, {"error": "gives no answer in time"}, False),
        (False, 0, {"reachable": True}, False),
    ],
)
def test_ends_of_paths_decide_unless_first_router_delivers(
    reachable: bool | None, credit: int, end: dict[str, Any], deliverable: bool
) -> None:
    records = [{"consumersWithCredit": credit, "inProcess": False}]
    answer = {"reachable": reachable, "records": records, "ways": [["A", "B"]], "routers": {"B": end}}
    assert is_deliverable(answer) is deliverable
