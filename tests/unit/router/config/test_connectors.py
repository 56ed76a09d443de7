"""Configured connectors: typed values, rules, and the effect of changes."""

import pytest

from sluice.router.config.diff import diff
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text


def text(*lines):
    return "\n".join(["connector {", *lines, "}", ""])


def connector(*lines):
    return load_text("x.conf", text(*lines)).connectors[0]


def errors(source):
    with pytest.raises(ConfigError) as caught:
        load_text("x.conf", source)
    return [(error.line, error.message) for error in caught.value.errors]


# brokers-and-edge.md C-1.
def test_connector_has_documented_defaults():
    found = connector()
    assert (found.name, found.identity, found.named) == ("connector/127.0.0.1:amqp",) * 2 + (False,)
    assert (found.host, found.port_text, found.place, found.family) == ("127.0.0.1", "amqp", "127.0.0.1:amqp", None)
    assert (found.role, found.cost, found.link_capacity, found.max_sessions) == ("normal", 1, 250, 32768)
    assert (found.sasl_mechanisms, found.sasl_username, found.sasl_password) == (None, None, None)
    assert (found.multi_tenant, found.strip_annotations_in, found.strip_annotations_out) == (False, True, True)


def test_connector_attributes_are_read():
    found = connector(
        "name: broker",
        "host: a.example",
        "port: 1234",
        "protocolFamily: IPv6",
        "role: route-container",
        "linkCapacity: 10",
        "stripAnnotations: in",
        "saslUsername: user",
        "saslPassword: pass:secret",
        "saslMechanisms: plain PLAIN",
    )
    assert (found.name, found.identity) == ("broker", "connector/a.example:1234:broker")
    assert (found.family, found.role, found.link_capacity) == ("IPv6", "route-container", 10)
    assert (found.strip_annotations_in, found.strip_annotations_out) == (True, False)
    assert (found.sasl_username, found.sasl_password, found.sasl_mechanisms) == ("user", "pass:secret", ("PLAIN",))
    assert "secret" not in repr(found)


def test_unknown_host_and_port_are_accepted():
    assert connector("host: no such host", "port: nonsense").place == "no such host:nonsense"


def test_unknown_mechanisms_are_accepted():
    configuration = load_text("x.conf", text("saslMechanisms: external,NONSENSE  ANONYMOUS"))
    assert configuration.connectors[0].sasl_mechanisms == ("EXTERNAL", "NONSENSE", "ANONYMOUS")
    assert configuration.warnings == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("role: inter-router", "not allowed to connect to or accept connections from other routers."),
        ("maxFrameSize: -1", "maxFrameSize"),
    ],
)
def test_invalid_connector_is_refused(line, message):
    ((at, found),) = errors(text(line))
    assert at == 2
    assert message in found


def test_reserved_open_properties_are_refused():
    expected = [(2, "Reserved key 'qd.x' not allowed in openProperties")]
    assert errors(text("openProperties: {", '"qd.x": 1', "}")) == expected


# brokers-and-edge.md C-4.
def test_entity_names_are_unique_over_all_types():
    both = text("name: x") + "listener {\nname: x\n}\n"
    assert [line for line, _ in errors(both)] == [4]
    assert [line for line, _ in errors(text("port: 1") + text("port: 1"))] == [4]


def changes(old, new):
    plan = diff(load_text("old.conf", old), load_text("new.conf", new))
    return [(change.kind, change.title(), change.effect, list(change.attributes)) for change in plan.changes]


def test_named_connector_may_move_and_unnamed_one_is_replaced():
    old, new = text("name: a", "port: 1"), text("name: a", "port: 2")
    assert changes(old, new) == [("update", "connector 'a'", "live", ["port"])]
    assert [change[:2] for change in changes(text("port: 1"), text("port: 2"))] == [
        ("delete", "connector 127.0.0.1:1"),
        ("create", "connector 127.0.0.1:2"),
    ]
    assert changes(text("port: 1"), text("port: 1", "saslPassword: x")) == [
        ("update", "connector 127.0.0.1:1", "reconnect", ["saslPassword"])
    ]


def test_password_is_not_shown_in_plan():
    plan = diff(load_text("old.conf", text("saslPassword: first")), load_text("new.conf", text("saslPassword: second")))
    assert "first" not in plan.render()
    assert "second" not in plan.render()
