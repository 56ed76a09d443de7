"""Keys of a router after updates, and the differences that they make (inter-router.md 9.4)."""

from types import MappingProxyType

import pytest

from sluice.supervisor.network.protocol.keys import Keys, KeysUpdate, apply
from sluice.supervisor.network.protocol.messages import MobileChange, MobileState

PRESENT: Keys = MappingProxyType({"M0a": 1, "M0b": 2})


def change(added: dict[str, int | None], *removed: str) -> MobileChange:
    return MobileChange("B", 1, 7, added, removed)


def state(keys: dict[str, int | None]) -> MobileState:
    return MobileState("B", 1, 7, keys)


@pytest.mark.parametrize(
    ("update", "keys", "added", "removed"),
    [
        (change({"M0c": 3}, "M0a"), {"M0b": 2, "M0c": 3}, {"M0c": 3}, ("M0a",)),
        (change({"M0a": 3}), {"M0a": 1, "M0b": 2}, {}, ()),
        (change({}, "M0x"), {"M0a": 1, "M0b": 2}, {}, ()),
        (change({}, "M0a", "M0a"), {"M0b": 2}, {}, ("M0a",)),
        (change({"M0c": 3}, "M0c"), {"M0a": 1, "M0b": 2}, {}, ()),
        (change({"M0a": 3}, "M0a"), {"M0b": 2}, {}, ("M0a",)),
        (state({"M0b": 5, "M0c": 3}), {"M0b": 2, "M0c": 3}, {"M0c": 3}, ("M0a",)),
        (state({}), {}, {}, ("M0a", "M0b")),
    ],
    ids=[
        "change",
        "known key keeps treatment",
        "removal of unknown key",
        "key removed twice",
        "key added and removed",
        "known key added and removed",
        "state",
        "empty state",
    ],
)
def test_update_yields_keys_and_differences(
    update: MobileChange | MobileState, keys: Keys, added: Keys, removed: tuple[str, ...]
) -> None:
    assert apply(PRESENT, update) == KeysUpdate(keys, added, removed)
    assert PRESENT == {"M0a": 1, "M0b": 2}, "keys are immutable"
