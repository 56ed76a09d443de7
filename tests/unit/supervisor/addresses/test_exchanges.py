"""Exchanges and bindings of the configuration (routing-semantics.md 15)."""

import pytest

from router.addressing.settings import AddressSettings, Setting
from router.config.entities import BindingConfig, ExchangeConfig
from supervisor.addresses.exchanges import ExchangeError, Exchanges
from supervisor.addresses.table import Table
from tests.unit.engine.ops import wire

SETTINGS = AddressSettings([("unavailable/#", Setting("unavailable")), ("m/#", Setting("multicast"))])


class Setup:
    def __init__(self):
        self.table = Table(1000)
        self.exchanges = Exchanges("QDR", "standalone", SETTINGS, self.table)

    def exchange(self, name, address, phase=0, alternate=None, method="amqp"):
        self.exchanges.add_exchange(
            ExchangeConfig(name=name, identity=name, address=address, phase=phase, alternate_address=alternate,
                           alternate_phase=0, match_method=method)
        )  # fmt: skip

    def bind(self, name, exchange, hop, key="#", phase=0):
        self.exchanges.add_binding(
            BindingConfig(name=name, identity=name, exchange_name=exchange, binding_key=key, next_hop_address=hop,
                          next_hop_phase=phase)
        )  # fmt: skip

    def key(self, number):
        return next(record.key for record in self.table.records.values() if record.id == number)

    def delta(self):
        delta = self.table.take_delta()
        return [] if delta is None else wire(delta[1])


@pytest.fixture
def setup():
    return Setup()


def refused(call, *arguments, **named):
    with pytest.raises(ExchangeError) as caught:
        call(*arguments, **named)
    return str(caught.value)


def test_ops(setup):
    setup.exchange("x", "/ex/", phase=2, alternate="alt", method="mqtt")
    setup.bind("b1", "x", "m/q1", "a/+", phase=1)
    setup.bind("b2", "x", "_local/q2")
    ops = setup.delta()
    assert [op for op in ops if op[0] != "addr"] == wire(setup.exchanges.snapshot_ops())
    exchange, first, second = wire(setup.exchanges.snapshot_ops())
    attributes = exchange[2]
    assert (exchange[0], attributes["match"]) == ("exchange", "mqtt")
    assert (setup.key(attributes["address"]), setup.key(attributes["alternate"])) == ("M2ex", "M0alt")
    assert first[:2] == second[:2] == ["bind", exchange[1]]
    assert first[2] != second[2]
    assert (first[3], setup.key(first[4])) == ("a/+", "M1m/q1")
    assert (second[3], setup.key(second[4])) == ("#", "Lq2")
    assert setup.table.records["M2ex"].exchange == exchange[1]
    assert setup.table.records["M1m/q1"].treatment == "multicast"
    last = [op for op in ops if op[0] == "addr" and op[2] == "M2ex"][-1]
    assert last[3]["exchange"] == exchange[1]


def test_addresses_stay(setup):
    setup.exchange("x", "ex")
    setup.bind("b", "x", "hop")
    setup.delta()
    for key in ("M0ex", "M0hop"):
        record = setup.table.records[key]
        setup.table.add_producer(record)
        setup.table.remove_producer(record)
    assert setup.delta() == []


def test_refusals(setup):
    setup.exchange("x", "ex")
    assert refused(setup.exchange, "y", "") == "exchange address is mandatory"
    assert refused(setup.exchange, "x", "other") == "duplicate exchange name"
    assert refused(setup.exchange, "y", "/ex") == "duplicate exchange address"
    assert refused(setup.exchange, "y", "y", method="z") == "Exchange matchMethod must be either 'amqp' or 'mqtt'"
    setup.exchange("phase", "ex", phase=1)
    setup.bind("b", "x", "hop", "a")
    assert refused(setup.bind, "c", "z", "hop") == "Named exchange does not exist"
    assert refused(setup.bind, "c", "x", "") == "No next hop specified"
    assert refused(setup.bind, "b", "x", "hop2") == "Duplicate next hop name"
    assert refused(setup.bind, "c", "x", "hop", "a") == "Next hop for key already exists"
    setup.exchange("m", "em", method="mqtt")
    assert refused(setup.bind, "c", "m", "hop", "#/a") == "The binding key pattern is invalid"
    assert "unavailable" in refused(setup.bind, "c", "x", "unavailable/a")
    setup.bind("c", "x", "hop", "b")
    setup.bind("d", "x", "hop", "a", phase=1)


def test_what_is_refused_leaves_nothing(setup):
    setup.exchange("x", "ex")
    setup.delta()
    refused(setup.exchange, "y", "y", alternate="y")
    refused(setup.bind, "b", "x", "unavailable/a")
    refused(setup.bind, "b", "x", "ex")
    assert setup.delta() == []
    assert list(setup.table.records) == ["M0ex"]
    setup.bind("b", "x", "hop")


def test_loops_are_refused(setup):
    setup.exchange("a", "ea")
    setup.exchange("b", "eb")
    setup.exchange("c", "ec", alternate="ea")
    assert "leads back" in refused(setup.bind, "self", "a", "amqp:/ea")
    setup.bind("ab", "a", "eb")
    assert "leads back" in refused(setup.bind, "ba", "b", "ea")
    assert "leads back" in refused(setup.bind, "bc", "b", "ec")
    setup.bind("other", "b", "ea", phase=1)  # another instance
    assert "leads back" in refused(setup.exchange, "d", "ed", alternate="/ed")


def test_a_loop_closed_by_a_new_exchange_is_refused(setup):
    setup.exchange("a", "ea")
    setup.bind("ab", "a", "eb")
    assert "leads back" in refused(setup.exchange, "b", "eb", alternate="ea")
    setup.exchange("b", "eb")
    assert "leads back" in refused(setup.bind, "ba", "b", "ea")
