"""Third-party clients over TLS, with each SASL mechanism that they support."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from tests.interop.conftest import ClientLauncher
from tests.peer.logins import SCRAM, token
from tests.peer.pki import Pki, pki
from tests.sasldb import proton_has_scram
from tests.system import secured
from tests.system.router import RouterProcess
from tests.system.secured import PASSWORD, USER

COUNT = 20
STORE = "of the store"
MECHANISMS = {
    "proton": ["EXTERNAL", *(SCRAM if proton_has_scram() else ()), "PLAIN", "ANONYMOUS"],
    "rhea": ["EXTERNAL", "XOAUTH2", "PLAIN", "ANONYMOUS"],
    "jms": ["EXTERNAL", "XOAUTH2", *SCRAM, "PLAIN", "ANONYMOUS"],
    "go": ["EXTERNAL", "XOAUTH2", "PLAIN", "ANONYMOUS"],
    "rust": ["EXTERNAL", *SCRAM, "PLAIN", "ANONYMOUS"],
}
#: Listener of `secured` for a mechanism; "people" for all others.
LISTENERS = {"EXTERNAL": "certificates", "XOAUTH2": "tokens", "ANONYMOUS": "anybody"}
SEND, RECEIVE = {"proton": "simple_send"}, {"proton": "simple_recv"}
#: Pattern of a client's error for a certificate that it does not trust.
NOT_TRUSTED = {
    "proton": "certificate verify failed",
    "rhea": "self-signed certificate|signature|unable to verify",
    "jms": "PKIX path validation failed",
    "go": "certificate signed by unknown authority",
    "rust": "certificate verify failed",
}
#: Pattern of a client's error for a certificate of another host.
NOT_FOR_HOST = {
    "proton": "certificate verify failed",
    "rhea": "Hostname/IP does not match",
    "jms": "No subject alternative DNS name matching localhost found",
    "go": "certificate is valid for other.example",
    "rust": "certificate verify failed",
}


class SecuredRouter:
    """Router with TLS listeners, and the URLs with which clients reach them."""

    def __init__(self, router: RouterProcess, own: Pki, folder: Path) -> None:
        self.router = router
        self.own = own
        self.folder = folder

    def url(self, mechanism: str, trusts: Pki | None = None, password: str = "", at: str | None = None) -> str:
        """Return the URL for clients with PEM files.

        `trusts` has the trusted certificates (default: the router's authority); `at` names a listener other than that
        of the mechanism.
        """
        query = {"mechanism": mechanism, "ca": str((trusts or self.own).trusted)}
        if mechanism == "EXTERNAL":
            query |= {"certificate": str(self.own.client.certificate), "key": str(self.own.client.key)}
        secret = password or _secret(mechanism)
        login = f"{USER}:{quote(secret, safe='')}@" if secret else ""
        return f"amqps://{login}localhost:{self._port(mechanism, at)}?{urlencode(query)}"

    def jms_url(self, mechanism: str, trusts: Pki | None = None, password: str = "", at: str | None = None) -> str:
        """Return the URL for Qpid JMS, with key stores of Java. Parameters are those of `url`."""
        query = {"amqp.saslMechanisms": mechanism, **_store("trustStore", self._trust_store(trusts or self.own))}
        if mechanism == "EXTERNAL":
            query |= _store("keyStore", self._key_store())
        if secret := password or _secret(mechanism):
            query |= {"jms.username": USER, "jms.password": secret}
        return f"amqps://localhost:{self._port(mechanism, at)}?{urlencode(query, quote_via=quote)}"

    def _port(self, mechanism: str, at: str | None) -> int:
        return self.router.ports[at or LISTENERS.get(mechanism, "people")]

    def wait_authenticated(self, mechanism: str, after: int) -> None:
        """Wait for a log line, from line `after` on, that a client has authenticated over TLS."""
        user = {"EXTERNAL": "127.0.0.1", "XOAUTH2": "alice", "ANONYMOUS": "anonymous"}.get(mechanism, USER)
        self.router.wait_log(rf"encrypted=TLSv1\.[23] auth={mechanism} user={user} ", after=after)

    def _trust_store(self, trusts: Pki) -> Path:
        path = self.folder / f"{trusts.trusted.parent.name}.p12"
        if not path.exists():
            words = ["-importcert", "-noprompt", "-alias", "a", "-file", trusts.trusted, "-keystore", path]
            _run("keytool", *words, "-storetype", "PKCS12", "-storepass", STORE)
        return path

    def _key_store(self) -> Path:
        path = self.folder / "client.p12"
        if not path.exists():
            certificate, key = self.own.client
            words = ["-export", "-in", certificate, "-inkey", key, "-out", path, "-passout", f"pass:{STORE}"]
            _run("openssl", "pkcs12", *words)
        return path


def _secret(mechanism: str) -> str:
    if mechanism == "XOAUTH2":
        return token()
    return PASSWORD if mechanism in ("PLAIN", *SCRAM) else ""


def _store(kind: str, path: Path) -> dict[str, str]:
    return {
        f"transport.{kind}Location": str(path),
        f"transport.{kind}Password": STORE,
        "transport.storeType": "PKCS12",
    }


def _run(*words: object) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "others")


@pytest.fixture(scope="module")
def _secured_router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRouter]:
    made, folder = pki(tmp_path_factory.getbasetemp()), tmp_path_factory.mktemp("files")
    router = RouterProcess(tmp_path_factory.mktemp("secured"), secured.sections(folder, made), 2)
    router.start()
    yield SecuredRouter(router, made, folder)
    router.stop()


@pytest.fixture
def secured_router(_secured_router: SecuredRouter, request: pytest.FixtureRequest) -> SecuredRouter:
    request.node.routers = [_secured_router.router]
    return _secured_router


@pytest.fixture(params=["proton", "rhea", "go", "rust"])
def client(request: pytest.FixtureRequest) -> ClientLauncher:
    """Launcher of each library whose programs make one connection each."""
    found: ClientLauncher = request.getfixturevalue(request.param)
    return found


def client_name(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["client"])


def test_mechanisms_authenticate_over_tls(
    secured_router: SecuredRouter, client: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    name = client_name(request)
    receivers, before = {}, len(secured_router.router.lines)
    for mechanism in MECHANISMS[name]:
        address = f"others/{name}-{mechanism}"
        receivers[mechanism] = client(RECEIVE.get(name, "receive"), secured_router.url(mechanism), address, COUNT)
    for mechanism, receiver in receivers.items():
        receiver.wait_for("attached")
        address = f"others/{name}-{mechanism}"
        sent = client(SEND.get(name, "send"), secured_router.url(mechanism), address, COUNT).result()
        assert sent in (COUNT, {"accepted": COUNT, "released": 0, "rejected": 0, "modified": 0})
        assert len(receiver.result()) == COUNT
        secured_router.wait_authenticated(mechanism, before)


def test_wrong_password_or_certificate_is_refused(
    secured_router: SecuredRouter, other_authority: Pki, client: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    """The router refuses a wrong password; the client refuses an untrusted or misnamed certificate."""
    name = client_name(request)
    wrong, unknown, elsewhere = (
        client(SEND.get(name, "send"), url, "others/x", COUNT)
        for url in (
            secured_router.url("PLAIN", password="wrong"),
            secured_router.url("PLAIN", other_authority),
            secured_router.url("ANONYMOUS", at="misnamed"),
        )
    )
    assert "auth" in (found := wrong.failure()).lower(), found
    assert re.search(NOT_TRUSTED[name], found := unknown.failure()), found
    assert re.search(NOT_FOR_HOST[name], found := elsewhere.failure()), found


def test_jms_mechanisms_authenticate_over_tls(
    secured_router: SecuredRouter, other_authority: Pki, jms: ClientLauncher
) -> None:
    """All connections are made by one process, because starting Java takes most of the time."""
    urls = [
        *(secured_router.jms_url(mechanism) for mechanism in MECHANISMS["jms"]),
        secured_router.jms_url("PLAIN", password="wrong"),
        secured_router.jms_url("PLAIN", other_authority),
        secured_router.jms_url("ANONYMOUS", at="misnamed"),
    ]
    before = len(secured_router.router.lines)
    *good, wrong, unknown, elsewhere = jms("each", "others/jms", COUNT, *urls).result()
    assert good == [str(COUNT)] * len(MECHANISMS["jms"]), good
    for mechanism in MECHANISMS["jms"]:
        secured_router.wait_authenticated(mechanism, before)
    assert "Client failed to authenticate using SASL: PLAIN" in wrong
    assert re.search(NOT_TRUSTED["jms"], unknown), unknown
    assert re.search(NOT_FOR_HOST["jms"], elsewhere), elsewhere
