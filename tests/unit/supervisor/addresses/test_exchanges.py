"""Exchanges and bindings of the configuration (routing-semantics.md 15)."""

import pytest

from sluice.router.addressing.settings import AddressSetting, AddressSettings
from sluice.router.config.entities import BindingConfig, ExchangeConfig
from sluice.supervisor.addresses.exchanges import ExchangeRefusedError, Exchanges
from tests.unit.ops import wire
from tests.unit.supervisor.journaled_table import JournaledTable

SETTINGS = AddressSettings([("unavailable/#", AddressSetting("unavailable")), ("m/#", AddressSetting("multicast"))])


class ExchangeConfigurator:
    def __init__(self):
        self.journaled = JournaledTable(1000)
        self.table = self.journaled.table
        self.exchanges = Exchanges(
            "QDR", "standalone", SETTINGS, self.table, self.journaled.slots, self.journaled.journal
        )

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
        delta = self.journaled.take_delta()
        return [] if delta is None else wire(delta[1])


@pytest.fixture
def configurator():
    return ExchangeConfigurator()


def refusal(call, *arguments, **named):
    with pytest.raises(ExchangeRefusedError) as caught:
        call(*arguments, **named)
    return str(caught.value)


def test_exchange_ops_match_snapshot(configurator):
    configurator.exchange("x", "/ex/", phase=2, alternate="alt", method="mqtt")
    configurator.bind("b1", "x", "m/q1", "a/+", phase=1)
    configurator.bind("b2", "x", "_local/q2")
    ops = configurator.delta()
    assert [op for op in ops if op[0] != "addr"] == wire(configurator.exchanges.snapshot_ops())
    exchange, first, second = wire(configurator.exchanges.snapshot_ops())
    attributes = exchange[2]
    assert (exchange[0], attributes["match"]) == ("exchange", "mqtt")
    assert (configurator.key(attributes["address"]), configurator.key(attributes["alternate"])) == ("M2ex", "M0alt")
    assert first[:2] == second[:2] == ["bind", exchange[1]]
    assert first[2] != second[2]
    assert (first[3], configurator.key(first[4])) == ("a/+", "M1m/q1")
    assert (second[3], configurator.key(second[4])) == ("#", "Lq2")
    assert configurator.table.records["M2ex"].exchange == exchange[1]
    assert configurator.table.records["M1m/q1"].treatment == "multicast"
    last = [op for op in ops if op[0] == "addr" and op[2] == "M2ex"][-1]
    assert last[3]["exchange"] == exchange[1]


def test_exchange_addresses_outlive_their_clients(configurator):
    configurator.exchange("x", "ex")
    configurator.bind("b", "x", "hop")
    configurator.delta()
    for key in ("M0ex", "M0hop"):
        record = configurator.table.records[key]
        configurator.table.add_producer(record)
        configurator.table.remove_producer(record)
    assert configurator.delta() == []


def test_invalid_exchanges_and_bindings_are_refused(configurator):
    configurator.exchange("x", "ex")
    assert refusal(configurator.exchange, "y", "") == "exchange address is mandatory"
    assert refusal(configurator.exchange, "x", "other") == "duplicate exchange name"
    assert refusal(configurator.exchange, "y", "/ex") == "duplicate exchange address"
    assert (
        refusal(configurator.exchange, "y", "y", method="z") == "Exchange matchMethod must be either 'amqp' or 'mqtt'"
    )
    configurator.exchange("phase", "ex", phase=1)
    configurator.bind("b", "x", "hop", "a")
    assert refusal(configurator.bind, "c", "z", "hop") == "Named exchange does not exist"
    assert refusal(configurator.bind, "c", "x", "") == "No next hop specified"
    assert refusal(configurator.bind, "b", "x", "hop2") == "Duplicate next hop name"
    assert refusal(configurator.bind, "c", "x", "hop", "a") == "Next hop for key already exists"
    configurator.exchange("m", "em", method="mqtt")
    assert refusal(configurator.bind, "c", "m", "hop", "#/a") == "The binding key pattern is invalid"
    assert "unavailable" in refusal(configurator.bind, "c", "x", "unavailable/a")
    configurator.bind("c", "x", "hop", "b")
    configurator.bind("d", "x", "hop", "a", phase=1)


def test_refused_exchange_leaves_no_records(configurator):
    configurator.exchange("x", "ex")
    configurator.delta()
    refusal(configurator.exchange, "y", "y", alternate="y")
    refusal(configurator.bind, "b", "x", "unavailable/a")
    refusal(configurator.bind, "b", "x", "ex")
    assert configurator.delta() == []
    assert list(configurator.table.records) == ["M0ex"]
    configurator.bind("b", "x", "hop")


def test_binding_loops_are_refused(configurator):
    configurator.exchange("a", "ea")
    configurator.exchange("b", "eb")
    configurator.exchange("c", "ec", alternate="ea")
    assert "leads back" in refusal(configurator.bind, "self", "a", "amqp:/ea")
    configurator.bind("ab", "a", "eb")
    assert "leads back" in refusal(configurator.bind, "ba", "b", "ea")
    assert "leads back" in refusal(configurator.bind, "bc", "b", "ec")
    configurator.bind("other", "b", "ea", phase=1)  # another instance
    assert "leads back" in refusal(configurator.exchange, "d", "ed", alternate="/ed")


def test_exchange_that_closes_loop_is_refused(configurator):
    configurator.exchange("a", "ea")
    configurator.bind("ab", "a", "eb")
    assert "leads back" in refusal(configurator.exchange, "b", "eb", alternate="ea")
    configurator.exchange("b", "eb")
    assert "leads back" in refusal(configurator.bind, "ba", "b", "ea")
