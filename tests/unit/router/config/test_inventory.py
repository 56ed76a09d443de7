"""Inventory: a configuration changed entity by entity equals one loaded in its final state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.config.errors import RequestError
from sluice.router.config.inventory import Inventory
from sluice.router.config.load import load_text
from sluice.router.config.request import conflict, create
from sluice.router.config.schema import SCHEMA

TEXT = """
listener {
    name: main
    port: 5672
}
address {
    name: first
    prefix: a
}
address {
    prefix: b
}
dummy {
}
"""


def inventory():
    return Inventory(load_text("x.conf", TEXT))


def add(stock, kind, name=None, **body):
    entity, _ = create(SCHEMA.types[kind], name, body, stock)
    stock.change([], [entity])
    return entity


def identities(stock, kind):
    return [each.identity for each in stock.of_type(kind)]


def test_new_numbers_follow_highest_in_use():
    stock = inventory()
    made = [add(stock, "router.config.address", prefix=f"x{number}") for number in range(3)]
    assert identities(stock, "router.config.address") == [f"address/{number}" for number in range(5)]
    stock.change([made[1]], [])
    assert add(stock, "router.config.address", prefix="y").identity == "address/5"
    stock.change(stock.of_type("router.config.address")[-2:], [])
    assert add(stock, "router.config.address", prefix="z").identity == "address/3"
    assert [each.prefix for each in stock.of_type("router.config.address")] == ["a", "b", "x0", "z"]


def test_deleted_entity_frees_its_name_and_prefix():
    stock = inventory()
    with pytest.raises(RequestError, match="Already exists"):
        add(stock, "router.config.address", prefix="a")
    with pytest.raises(RequestError, match="Name conflicts"):
        add(stock, "router.config.address", "first", prefix="c")
    stock.change(stock.named("first"), [])
    assert add(stock, "router.config.address", "first", prefix="a").name == "first"


def test_replacement_keeps_position():
    stock = inventory()
    first, second = stock.of_type("router.config.address")
    new = create(SCHEMA.types["router.config.address"], "third", {"prefix": "c"}, stock)[0]
    stock.change([first], [new])
    assert stock.of_type("router.config.address") == (new, second)


def test_singletons_and_other_types_are_kept():
    stock = inventory()
    assert stock.of_type("dummy")[0].identity == "dummy/0"
    assert stock.of_type("console") == ()
    (router,) = stock.of_type("router")
    assert router is stock.configuration.router
    dummy = add(stock, "dummy", "mine")
    assert stock.of_type("dummy")[1:] == (dummy,)
    assert conflict(dummy, stock) is not None
    stock.change([dummy], [])
    assert conflict(dummy, stock) is None


def test_name_of_many_digits_is_no_number():
    """A name of the client's may have more digits than `int` converts."""
    stock = inventory()
    made = add(stock, "sslProfile", "9" * 5000)
    assert made.identity == "sslProfile/" + "9" * 5000
    assert stock.named("9" * 5000) == [made]
    assert stock.next_number("sslProfile") == 0
    stock.change([made], [])
    assert stock.named("9" * 5000) == []


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([None, "n", "main"]))))
def test_indexes_equal_those_of_fresh_inventory(steps):
    stock = inventory()
    for making, prefix, name in steps:
        if making:
            try:
                add(stock, "router.config.address", name, prefix=prefix)
            except RequestError:
                continue
        else:
            stock.change([each for each in stock.of_type("router.config.address") if each.prefix == prefix], [])
        fresh = Inventory(stock.configuration)
        assert (stock.tokens, stock._by_identity) == (fresh.tokens, fresh._by_identity)
        assert {key: set(map(id, each)) for key, each in stock._by_name.items()} == {
            key: set(map(id, each)) for key, each in fresh._by_name.items()
        }
        assert stock.next_number("router.config.address") == fresh.next_number("router.config.address")
