"""Requests to create and update entities: AMQP values, the resulting entities, and error texts."""

import uuid
from typing import Any

import pytest

from sluice.router.amqp.codec import Char, Symbol, Timestamp
from sluice.router.config.errors import RequestError
from sluice.router.config.inventory import Inventory
from sluice.router.config.load import load_text
from sluice.router.config.request import conflict, create, plain, update
from sluice.router.config.schema import SCHEMA
from sluice.router.config.values import InvalidValue
from sluice.router.log import DEBUG

LONG = "org.apache.qpid.dispatch."
TEXT = """
router {
    id: R
}
listener {
    name: main
    port: 5672
}
address {
    name: first
    prefix: a
}
exchange {
    name: E
    address: e
}
binding {
    name: B
    exchangeName: E
    bindingKey: k
    nextHopAddress: n
}
dummy {
}
"""


def configuration():
    return load_text("x.conf", TEXT)


def inventory():
    return Inventory(configuration())


def created(kind, body, name=None):
    config, _ = create(SCHEMA.types[kind], name, body, inventory())
    return config


def refused(kind, body, name=None):
    with pytest.raises(RequestError) as caught:
        create(SCHEMA.types[kind], name, body, inventory())
    return caught.value.status, str(caught.value)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (Timestamp(7), 7),
        (Symbol("a"), "a"),
        (b"abc", "abc"),
        (2.5, None),
        (Char("x"), None),
        (uuid.UUID(int=1), None),
        ([1, 2.5, Symbol("s")], [1, 2.5, "s"]),
        ({"a": {"b": b"c"}}, {"a": {"b": "c"}}),
    ],
)
def test_plain_converts_amqp_values(value, meant):
    found = plain(value)
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize("value", [b"\xff", {1: "a"}, [uuid.UUID(int=1)], {"a": object()}])
def test_plain_refuses_other_values(value):
    with pytest.raises(InvalidValue):
        plain(value)


def test_listener_is_created_from_request():
    body = {
        "type": LONG + "listener",
        "host": Symbol("127.0.0.1"),
        "port": 0,
        "stripAnnotations": 1,
        "multiTenant": "yes",
        "link-capacity": 3,
    }
    status, text = refused("listener", body)
    assert (status, text) == (400, f"Unknown attribute 'link-capacity' for '{LONG}listener'")
    del body["link-capacity"]
    config = created("listener", {**body, "linkCapacity": "3", "maxFrameSize": 2.5, "cost": None}, name="new")
    assert (config.host, config.port, config.link_capacity, config.max_frame_size) == ("127.0.0.1", 0, 3, 16384)
    assert (config.strip_annotations_in, config.strip_annotations_out, config.multi_tenant) == (False, True, True)
    assert (config.name, config.identity, config.line) == ("new", "listener/127.0.0.1:0:new", None)
    assert config.attributes["type"] == LONG + "listener"
    assert list(config.attributes)[-3:] == ["name", "identity", "type"]


def test_listener_without_name_gets_default():
    for name in (None, ""):
        config = created("listener", {"port": "5000", "name": name})
        assert (config.name, config.identity, config.named) == ("listener/:5000", "listener/:5000", False)
    assert not created("router.config.address", {"prefix": "b"}, name="").named
    assert refused("router.config.exchange", {"address": "f"}, name="")[1] == "exchange requires a unique name"


def test_old_attribute_names_give_warning():
    body = {"protocolFamily": "IPv4", "port": 0}
    config: Any
    config, warnings = create(SCHEMA.types["listener"], None, body, inventory())
    assert config.family == "IPv4"
    text = "Attribute 'protocolFamily' of entity 'listener' has been deprecated. Use 'socketAddressFamily' instead"
    assert warnings == [("AGENT", text)]
    status, text = refused("listener", {"protocolFamily": "IPv4", "socketAddressFamily": "IPv4"})
    both = "Both 'protocolFamily' and 'socketAddressFamily' cannot be specified for entity 'listener'"
    assert (status, text) == (400, f"{LONG}listener: {both}")


@pytest.mark.parametrize(
    ("kind", "body", "status", "text"),
    [
        ("listener", {"identity": "x"}, 400, "Cannot set attribute 'identity' in CREATE"),
        ("listener", {"bogus": 1}, 400, f"Unknown attribute 'bogus' for '{LONG}listener'"),
        ("listener", {"cost": "x"}, 400, f"{LONG}listener: invalid literal for int() with base 10: 'x'"),
        ("listener", {"http": "maybe"}, 400, f"{LONG}listener: Invalid Boolean value ''maybe''"),
        (
            "listener",
            {"role": "none"},
            400,
            f"{LONG}listener: Invalid value for enum"
            "['normal', 'inter-router', 'route-container', 'edge', 'inter-edge']: 'none'",
        ),
        ("listener", {"openProperties": 5}, 400, f"{LONG}listener: Properties must be a map"),
        ("listener", {"openProperties": {"é": 1}}, 400, f"{LONG}listener: Property keys must be ASCII encoded"),
        ("listener", {"openProperties": {"qd.x": 1}}, 400, "Reserved key 'qd.x' not allowed in openProperties"),
        (
            "listener",
            {"role": "edge"},
            400,
            "role='standalone' not allowed to connect to or accept connections from other routers.",
        ),
        (
            "connector",
            {"saslUsername": "u" * 70_000},
            400,
            f"{LONG}connector: attribute 'saslUsername' has 70000 octets; at most 400 are allowed",
        ),
        ("saslUsers", {"name": "u"}, 400, f"{LONG}saslUsers: Missing required attribute 'file'"),
        ("listener", {"saslUsers": "u"}, 400, "Cannot find saslUsers u"),
        ("log", {"module": "SERVER"}, 501, f"Operation 'CREATE' not implemented for '{LONG}log' ['UPDATE', 'READ']"),
        ("listener", [1], 400, "Body of request must be a map"),
    ],
)
def test_invalid_create_is_refused(kind, body, status, text):
    found = refused(kind, body)
    assert found[0] == status
    assert found[1] == text


def test_name_of_management_entity_is_taken():
    status, text = refused("listener", {"port": 1}, name="self")
    assert status == 400
    assert text.endswith("duplicates unique attribute 'name' from existing ManagementEntity(name=self, identity=self)")


def test_duplicate_name_is_refused():
    status, text = refused("listener", {"port": 1}, name="main")
    assert status == 400
    assert text.startswith("adding ListenerEntity(host=, port=1,")
    assert "duplicates unique attribute 'name' from existing ListenerEntity(" in text
    assert "'name'" in refused("listener", {"port": 1}, name="log/SERVER")[1]
    assert "'name'" in refused("dummy", {}, name="dummy/0")[1]
    assert conflict(created("dummy", {}), inventory()) is None


def test_dummy_is_created_with_number():
    assert inventory().next_number("dummy") == 1
    config = created("dummy", {"num1": "7", "arg1": True})
    assert (config.identity, config.values) == ("dummy/1", {"num1": 7, "arg1": "True"})
    config, _ = create(SCHEMA.types["dummy"], "d", {}, inventory(), number=9)
    assert (config.identity, config.name) == ("dummy/9", "d")


def test_address_is_created_from_request():
    body = {"prefix": "b.c", "distribution": "multicast", "name": "ignored", "bogus": 1, "priority": "3"}
    config = created("router.config.address", body)
    assert (config.prefix, config.distribution, config.priority) == ("b.c", "multicast", 3)
    assert (config.name, config.identity, config.named) == ("address/1", "address/1", False)
    config = created("router.config.address", {"pattern": "x", "distribution": "nonsense", "waypoint": "yes"}, "n")
    assert (config.distribution, config.waypoint, config.name) == ("balanced", False, "n")
    assert created("router.config.address", {"prefix": "b", "fallback": True}).fallback
    assert created("router.config.address", {"prefix": "b", "enableFallback": True}).fallback
    assert (
        created("router.config.address", {"prefix": "b", "presettledOverflow": "block"}).presettled_overflow == "block"
    )
    assert created("router.config.address", {"prefix": "b", "priority": -1}).priority is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        ({"prefix": "b", "pattern": "b"}, "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        ({"prefix": 5}, "Prefix must be a non-empty string type"),
        ({"pattern": ""}, "Pattern must be a non-empty string type"),
        ({"pattern": "./"}, "Pattern invalid - no tokens"),
        ({"prefix": "b", "ingressPhase": 1}, "Phase values must be between 0 and 9"),
        ({"prefix": "b", "ingressPhase": "x", "egressPhase": 1}, "Phase values must be between 0 and 9"),
        ({"prefix": "b", "priority": 10}, "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"),
        (
            {"prefix": "b", "fallback": True, "waypoint": True},
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
        ({"prefix": "/a."}, "Already exists"),
        ({"pattern": "a/#"}, "Already exists"),
        ("text", "Body of request must be a map"),
    ],
)
def test_invalid_address_is_refused(body, text):
    assert refused("router.config.address", body) == (400, text)


def test_address_with_taken_name_is_refused():
    found = refused("router.config.address", {"prefix": "b"}, name="first")
    assert found == (400, "Name conflicts with an existing entity")


def test_exchange_and_binding_are_created():
    exchange = created("router.config.exchange", {"address": "f", "matchMethod": "mqtt", "phase": 2}, name="F")
    assert (exchange.name, exchange.address, exchange.phase, exchange.match_method) == ("F", "f", 2, "mqtt")
    binding = created("router.config.binding", {"exchangeName": "E", "nextHopAddress": "m"})
    assert (binding.binding_key, binding.name, binding.named) == ("#", "binding/1", False)


@pytest.mark.parametrize(
    ("kind", "name", "body", "text"),
    [
        ("exchange", None, {"address": "f"}, "exchange requires a unique name"),
        ("exchange", "F", {}, "exchange address is mandatory"),
        ("exchange", "F", {"address": "e"}, "duplicate exchange address"),
        ("exchange", "E", {"address": "f"}, "duplicate exchange name"),
        ("exchange", "F", {"address": "f", "matchMethod": "x"}, "Exchange matchMethod must be either 'amqp' or 'mqtt'"),
        ("exchange", "F", {"address": "f", "alternatePhase": 10}, "phase must be in the range 0-9"),
        ("binding", None, {"nextHopAddress": "n"}, "Binding configuration requires an exchange"),
        ("binding", None, {"exchangeName": "X", "nextHopAddress": "n"}, "Named exchange does not exist"),
        ("binding", None, {"exchangeName": "E"}, "No next hop specified"),
        ("binding", "B", {"exchangeName": "E", "nextHopAddress": "x"}, "Duplicate next hop name"),
        (
            "binding",
            None,
            {"exchangeName": "E", "nextHopAddress": "n", "bindingKey": "k"},
            "Next hop for key already exists",
        ),
        (
            "binding",
            None,
            {"exchangeName": "E", "nextHopAddress": "n", "nextHopPhase": -1},
            "phase must be in the range 0-9",
        ),
    ],
)
def test_invalid_exchange_and_binding_are_refused(kind, name, body, text):
    assert refused(f"router.config.{kind}", body, name) == (400, text)


def log(module="SERVER"):
    return next(each for each in configuration().logs if each.module == module)


def test_update_sets_and_clears_attributes():
    config: Any
    cleared: Any
    config, warnings = update(log(), {"enable": "debug", "output": "stdout"}, configuration())
    assert (config.settings.mask, config.settings.output, config.identity) == (DEBUG, "stdout", "log/SERVER")
    assert config.values == {"module": "SERVER", "enable": "debug", "outputFile": "stdout"}
    assert len(warnings) == 1
    cleared, _ = update(config, {"enable": None, "name": "log/SERVER", "type": LONG + "log"}, configuration())
    assert cleared.values == {"module": "SERVER", "outputFile": "stdout"}
    assert cleared.settings.mask is None
    default, _ = update(log("DEFAULT"), {"enable": "debug"}, configuration())
    assert update(default, {"enable": None}, configuration())[0].values["enable"] == "info+"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"bogus": 1}, f"Unknown attribute 'bogus' for '{LONG}log'"),
        ({"module": "ROUTER"}, "Cannot update attribute 'module' in UPDATE"),
        ({"name": "other"}, "Cannot update attribute 'name' in UPDATE"),
        ({"identity": 5}, "Cannot update attribute 'identity' in UPDATE"),
        ({"type": LONG + "listener"}, "Cannot update attribute 'type' in UPDATE"),
        ({"includeSource": "maybe"}, f"{LONG}log: Invalid Boolean value ''maybe''"),
        (5, "Body of request must be a map"),
    ],
)
def test_invalid_update_is_refused(body, text):
    with pytest.raises(RequestError) as caught:
        update(log(), body, configuration())
    assert (caught.value.status, str(caught.value)) == (400, text)


def test_update_with_invalid_log_level_is_refused():
    """1.19 notices the error when it applies the level, so the status differs."""
    with pytest.raises(RequestError) as caught:
        update(log(), {"enable": "bogus"}, configuration())
    levels = "{none, trace, debug, info, notice, warning, error, critical}."
    text = f"CError: Configuration: 'bogus' is not a valid log level. Should be one of {levels}"
    assert (caught.value.status, str(caught.value)) == (500, text)


def test_update_of_fixed_attribute_is_refused():
    listener = configuration().listeners[0]
    same, _ = update(listener, {"cost": 1, "name": "main", "port": "5672"}, configuration())
    assert same == listener
    with pytest.raises(RequestError, match="Cannot update attribute 'cost' in UPDATE"):
        update(listener, {"cost": True}, configuration())
