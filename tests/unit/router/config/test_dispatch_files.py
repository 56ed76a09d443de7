"""Configuration files written for Dispatch that the router accepts unchanged."""

from pathlib import Path

import pytest

from sluice.router.config.load import load, load_text

EXAMPLES = Path(__file__).parent / "dispatch"


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_dispatch_file_is_accepted_unchanged(path):
    configuration = load(str(path))
    deprecated = [text for _, text in configuration.warnings if "deprecated" in text]
    told = [text for _, text in configuration.warnings if "no effect in this version" in text]
    assert len(deprecated) + len(told) == len(configuration.warnings)
    assert (len(deprecated), len(told)) == ((10, 2) if path.name == "old-names.conf" else (0, 0))
    assert configuration.listeners


def test_example_files_are_read_correctly():
    def example(name):
        return load(str(EXAMPLES / name))

    clients = example("client-connections.conf")
    assert clients.router.workers == 4
    internal, tenants, brokers = clients.listeners
    assert (internal.family, internal.max_frame_size, internal.max_session_frames) == ("IPv4", 65536, 100)
    assert internal.open_properties == {"site": "A", "priority": 5}
    assert (tenants.multi_tenant, len(tenants.failover_servers), brokers.role) == (True, 2, "route-container")
    monitoring = example("monitoring.conf").listeners[1]
    assert (monitoring.http, monitoring.metrics, monitoring.healthz) == (True, True, True)
    addresses = example("addresses.conf").addresses
    assert [each.pattern or each.prefix for each in addresses] == [
        "*/orders",
        "notifications/#",
        "my_queue",
        "chain",
        "account",
    ]
    assert example("exchange.conf").bindings[0].binding_key == "usa.washington.#"
    assert example("json-syntax.json").addresses[1].priority == 3
    assert example("old-names.conf").router.workers == 2


SECURE = """
router {
    mode: interior
    id: A
}
listener {
    role: inter-router
    port: 5673
    sslProfile: inter-router-tls
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    requireSsl: yes
}
sslProfile {
    name: inter-router-tls
    certFile: /etc/qpid-dispatch-certs/inter-router/tls.crt
    password: file:/etc/password
}
connector {
    name: broker
    role: route-container
    host: broker.example.com
    saslMechanisms: ANONYMOUS
}
linkRoute {
    prefix: q1
    direction: in
    connection: broker
}
autoLink {
    address: q2
    direction: out
    connection: broker
}
policy {
    enableVhostPolicy: true
}
vhost {
    hostname: $default
    allowUnknownUser: true
    groups: {
        $default: {
            users: *
            remoteHosts: *
            sourcePattern: a/#, b/#   # both
        },
        admin: {
            users: alice, bob
        }
    }
}
"""


def test_file_with_security_is_accepted():
    configuration = load_text("x.conf", SECURE)
    assert configuration.listeners[0].ssl_profile == "inter-router-tls"
    assert configuration.listeners[0].verifies_peer
    assert [vhost.hostname for vhost in configuration.vhosts] == ["$default"]
