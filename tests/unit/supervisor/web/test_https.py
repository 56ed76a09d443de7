"""TLS of HTTP listeners: credentials, protocol versions, client certificates, and records without data."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import ProcessLog
from sluice.router.tls.versions import VERSIONS
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.tls.profiles import TlsProfiles
from sluice.supervisor.web import https
from sluice.supervisor.web.https import HttpsContexts
from tests.peer.pki import Issued, Pki, pki

pytestmark = pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")  # of old versions, which a profile may name

Contexts = Callable[..., HttpsContexts]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    """Certificate of an authority that the router does not know."""
    return pki(tmp_path_factory.getbasetemp(), "strangers").client


@pytest.fixture
def contexts(authority: Pki, log: ProcessLog) -> Contexts:
    """Function that returns the contexts of a router whose profile `p` has these attributes more."""

    def make(**attributes: object) -> HttpsContexts:
        given = {"certFile": authority.server.certificate, "privateKeyFile": authority.server.key, **attributes}
        lines = "".join(f"    {name}: {value}\n" for name, value in given.items() if value is not None)
        text = f"sslProfile {{\n    name: p\n{lines}}}\nlistener {{\nport: 0\nhttp: yes\nsslProfile: p\n}}\n"
        waker = Waker()
        profiles = TlsProfiles(Journal(), waker, log)

        async def load() -> None:
            waker.connect(asyncio.get_running_loop(), lambda: None)
            await profiles.load(load_text("x.conf", text))

        asyncio.run(load())
        return HttpsContexts(profiles, log)

    return make


class TlsConversation:
    """Server of a context and a client of the standard library, connected through memory."""

    def __init__(
        self,
        server: ssl.SSLContext,
        trusted: Path,
        shown: Issued | None = None,
        limits: Mapping[str, ssl.TLSVersion] | None = None,
        version: ssl.TLSVersion | None = None,
    ) -> None:
        """shown: certificate of the client. limits: attributes of its context. version: only version it offers."""
        client = ssl.create_default_context(cafile=trusted)
        if version is not None:
            client.set_ciphers("DEFAULT:@SECLEVEL=0")
            client.minimum_version = client.maximum_version = version
        for name, value in (limits or {}).items():
            setattr(client, name, value)
        if shown is not None:
            client.load_cert_chain(shown.certificate, shown.key)
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(self.to_server, self.to_client, server_side=True)
        self.client = client.wrap_bio(self.to_client, self.to_server, server_hostname="localhost")

    def shake(self) -> None:
        """Perform the handshake. Raises SSLError."""
        waiting = [self.client.do_handshake, self.server.do_handshake]
        for _ in range(10):
            for each in list(waiting):
                try:
                    each()
                    waiting.remove(each)
                except ssl.SSLWantReadError:
                    pass
        assert waiting == []


def test_client_and_server_exchange_data(contexts: Contexts, authority: Pki) -> None:
    context = contexts().context("p", verify_peer=False)
    assert context is not None
    talk = TlsConversation(context, authority.trusted)
    talk.shake()
    for number in range(5):  # more octets than may come without data
        talk.client.write(bytes([number]) * 15000)
        assert talk.server.read(65536) == bytes([number]) * 15000
    assert talk.client.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("protocols", "refused"),
    [
        ("TLSv1.2", {"minimum_version": ssl.TLSVersion.TLSv1_3}),
        ("TLSv1.3", {"maximum_version": ssl.TLSVersion.TLSv1_2}),
    ],
)
def test_client_with_other_protocol_is_refused(
    contexts: Contexts, authority: Pki, protocols: str, refused: dict[str, ssl.TLSVersion]
) -> None:
    context = contexts(protocols=protocols).context("p", verify_peer=False)
    assert context is not None
    talk = TlsConversation(context, authority.trusted)
    talk.shake()
    assert talk.client.version() == protocols
    with pytest.raises(ssl.SSLError):
        TlsConversation(context, authority.trusted, limits=refused).shake()


@pytest.mark.parametrize("ciphers", [None, "DEFAULT"])
@pytest.mark.parametrize(
    "protocols", ["TLSv1.1", "TLSv1.1 TLSv1.2", "TLSv1.1 TLSv1.3", "TLSv1 TLSv1.1 TLSv1.2 TLSv1.3"]
)
def test_named_version_is_served_beside_old_ones_and_gaps(
    contexts: Contexts, authority: Pki, protocols: str, ciphers: str | None
) -> None:
    context = contexts(protocols=protocols, ciphers=ciphers).context("p", verify_peer=False)
    assert context is not None
    for name, (version, _) in VERSIONS.items():
        talk = TlsConversation(context, authority.trusted, version=version)
        if name in protocols.split():
            talk.shake()
            assert talk.client.version() == name
        else:
            with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION"):
                talk.shake()


def test_client_certificate_is_required_if_peer_is_verified(contexts: Contexts, authority: Pki) -> None:
    context = contexts(caCertFile=authority.trusted).context("p", verify_peer=True)
    assert context is not None
    TlsConversation(context, authority.trusted, authority.client).shake()
    without = TlsConversation(context, authority.trusted)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        without.shake()


def test_optional_client_certificate_is_verified_if_given(contexts: Contexts, authority: Pki, stranger: Issued) -> None:
    made = contexts(caCertFile=authority.trusted)
    context = made.context("p", verify_peer=True, optional=True)
    assert context is not None
    assert context is not made.context("p", verify_peer=True)
    without = TlsConversation(context, authority.trusted)
    without.shake()
    assert not without.server.getpeercert()
    certified = TlsConversation(context, authority.trusted, authority.client)
    certified.shake()
    assert certified.server.getpeercert()
    with pytest.raises(ssl.SSLError):
        TlsConversation(context, authority.trusted, stranger).shake()


def test_peer_is_not_verified_without_authorities(contexts: Contexts, authority: Pki) -> None:
    context = contexts().context("p", verify_peer=True)
    assert context is not None
    TlsConversation(context, authority.trusted).shake()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_gets_no_session_ticket(contexts: Contexts, authority: Pki, version: ssl.TLSVersion) -> None:
    context = contexts().context("p", verify_peer=False)
    assert context is not None
    talk = TlsConversation(context, authority.trusted, limits={"maximum_version": version})
    talk.shake()
    talk.server.write(b"x")
    assert talk.client.read(1) == b"x"
    assert talk.client.session is None or not talk.client.session.has_ticket


def test_context_is_made_once_for_credentials(contexts: Contexts) -> None:
    made = contexts()
    assert made.context("p", verify_peer=False) is made.context("p", verify_peer=False)
    assert made.context("unknown", verify_peer=False) is None


def test_octets_without_data_are_bounded(contexts: Contexts, authority: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    context = contexts().context("p", verify_peer=False)
    assert context is not None
    talk = TlsConversation(context, authority.trusted)
    talk.shake()
    talk.client.write(bytes(15000))  # a single record: its data come with its last octet
    monkeypatch.setattr(https, "MOST_WITHOUT_DATA", 10_000)
    with pytest.raises(ssl.SSLError, match="too many TLS records without data"):
        talk.server.read(100)
