"""amqpload over TLS: messages, simultaneous and resumed handshakes, and refusals; HAProxy as a reference."""

from collections.abc import Iterator

import pytest

from loadtests.haproxy import Certificate, Haproxy
from loadtests.processes import BenchRouter, MeasureError, build_tools, load
from loadtests.tls_rows import TLS, configuration, encrypted, rate_of_haproxy

CROWD = 200


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return Certificate()


@pytest.fixture(scope="module")
def router(certificate: Certificate) -> Iterator[BenchRouter]:
    build_tools()
    with BenchRouter(1, text=configuration(certificate)) as router:
        yield router


def test_messages_arrive_over_tls(router: BenchRouter, certificate: Certificate) -> None:
    report = encrypted(router, certificate, count=5000)
    assert report["received"] == 5000


def test_large_messages_arrive_over_tls(router: BenchRouter, certificate: Certificate) -> None:
    report = encrypted(router, certificate, count=30, size=300_000)
    assert report["received"] == 30


def test_handshake_burst_is_counted(router: BenchRouter) -> None:
    """All handshakes start at once: more than a worker handles in one wake."""
    report = router.load(handshakes=CROWD, opening=CROWD, **TLS)
    assert (report["handshakes"], report["resumed"]) == (CROWD, 0)


def test_resumed_handshakes_are_counted(router: BenchRouter) -> None:
    assert router.load(handshakes=CROWD, resume=True, **TLS)["resumed"] == CROWD


def test_idle_connections_are_kept(router: BenchRouter) -> None:
    report = router.load(idle=50, address="idle", **TLS)
    assert (report["connections"], report["closed"]) == (50, 0)


def test_unexpected_certificate_is_refused(router: BenchRouter) -> None:
    with pytest.raises(MeasureError, match="certificate verify failed"):
        encrypted(router, Certificate(), count=1)


def test_listener_without_tls_is_reported(router: BenchRouter) -> None:
    with pytest.raises(MeasureError, match="handshake 0: failed"):
        load(port=router.ports[1], handshakes=1, stall_seconds=5, **TLS)


def test_haproxy_can_be_measured(certificate: Certificate) -> None:
    build_tools()
    try:
        with Haproxy(certificate, [None]) as closing:
            assert load(port=closing.ports[0], handshakes=20, resume=True, **TLS)["resumed"] == 20
    except MeasureError as error:
        if "is missing" in str(error):
            pytest.skip(str(error))
        raise
    assert rate_of_haproxy(certificate, count=2000)["received"] == 2000
