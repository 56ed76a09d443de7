"""Access to metrics and health details: only clients that a listener with authentication accepts."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.peer.pki import Issued, Pki, pki
from tests.system.fixtures import Start
from tests.system.http import Reply, get
from tests.system.router import RouterProcess, listener

pytestmark = pytest.mark.adversarial

SECRET = "a token of Prometheus"
JSON = {"Accept": "application/json"}
#: HTTPS listener with a login for AMQP over WebSocket; its profile has authorities for certificates of clients.
LOGIN = {"authenticatePeer": True, "sslProfile": "with", "requireSsl": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "metrics")


@pytest.fixture
def router(start: Start, made: Pki, tmp_path: Path) -> RouterProcess:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    (tmp_path / "people").touch(0o600)
    files = {"certFile": made.server.certificate, "privateKeyFile": made.server.key}
    return start(
        [
            ("sslProfile", {"name": "with", **files, "caCertFile": made.trusted}),
            ("sslProfile", {"name": "without", **files}),
            listener("open", http=True),
            listener("closed", http=True, authenticatePeer=True),
            listener("token", http=True, authenticatePeer=True, metricsToken=f"file:{tmp_path / 'token'}"),
            listener("only", http=True, metricsToken=SECRET.replace(" ", "-")),
            listener("gone", http=True, metricsToken="file:/nonexistent"),
            listener("certificates", http=True, authenticatePeer=True, sslProfile="with"),
            listener("anybody", http=True, authenticatePeer=True, sslProfile="without", requireSsl=True),
            ("saslUsers", {"name": "people", "file": tmp_path / "people"}),
            listener("console", http=True, saslUsers="people", **LOGIN),
            listener("pages", http=True, saslUsers="people", websockets=False, **LOGIN),
            listener("files", http=True, saslUsers="people", httpRootDir=tmp_path, **LOGIN),
            listener(),
        ]
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def shows_details(reply: Reply, verdict: Reply) -> bool:
    """Return whether the details are shown, and check that public information is always shown."""
    details = len(verdict.body.splitlines()) > 1
    assert verdict.status == 200
    assert verdict.body.splitlines()[-1] == b"readyz check passed"
    assert (reply.status == 200) is details
    if not details:
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert b"sluice_" not in reply.body
    return details


@pytest.mark.parametrize(
    ("name", "headers", "shown"),
    [
        ("open", {}, True),
        ("closed", {}, False),
        ("closed", bearer(""), False),
        ("closed", bearer(SECRET), False),
        ("token", {}, False),
        ("token", bearer(SECRET), True),
        ("token", bearer(f"{SECRET}x"), False),
        ("token", {"Authorization": f"bearer {SECRET}"}, True),
        ("token", {"Authorization": f"Basic {SECRET}"}, False),
        ("token", {"Authorization": SECRET}, False),
        ("only", {}, False),
        ("only", bearer(SECRET.replace(" ", "-")), True),
        ("gone", {}, False),
        ("gone", bearer("file:/nonexistent"), False),
    ],
)
def test_details_are_shown_to_authorized_clients(
    router: RouterProcess, name: str, headers: dict[str, str], shown: bool
) -> None:
    port = router.ports[name]
    assert shows_details(get(port, "/metrics", **headers), get(port, "/readyz", **headers)) is shown
    assert get(port, "/healthz").body == b"OK\n"
    found = json.loads(get(port, "/livez", **headers, **JSON).body)
    assert found["passed"] is True
    assert ("checks" in found) is shown


def test_changed_token_applies_at_once(router: RouterProcess, tmp_path: Path) -> None:
    port = router.ports["token"]
    (tmp_path / "token").write_text("another one\n")
    assert get(port, "/metrics", **bearer(SECRET)).status == 401
    assert get(port, "/metrics", **bearer("another one")).status == 200


def test_certificate_authorizes_over_https(router: RouterProcess, made: Pki) -> None:
    """Plain HTTP on the same port has no certificate, and is refused."""
    port = router.ports["certificates"]
    assert b"sluice_" in _https(port, made, made.client)
    assert get(port, "/metrics").status == 401
    with pytest.raises(urllib.error.HTTPError, match="401"):
        _https(router.ports["anybody"], made, None)


@pytest.mark.parametrize("name", ["console", "pages"])
def test_listener_with_login_serves_browser_without_certificate(router: RouterProcess, made: Pki, name: str) -> None:
    """A worker does TLS for the listener with WebSocket, the supervisor for the other one."""
    port = router.ports[name]
    assert _https(port, made, None, "/healthz") == b"OK\n"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        _https(port, made, None)
    assert b"sluice_" in _https(port, made, made.client)


@pytest.mark.parametrize("name", ["certificates", "files"])
def test_listener_without_login_for_pages_requires_certificate(router: RouterProcess, made: Pki, name: str) -> None:
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        _https(router.ports[name], made, None, "/healthz")


def _https(port: int, made: Pki, client: Issued | None, path: str = "/metrics") -> bytes:
    context = made.context(client)
    assert isinstance(context, ssl.SSLContext)
    with urllib.request.urlopen(f"https://localhost:{port}{path}", context=context, timeout=20) as answer:
        body: bytes = answer.read()
        return body


def test_token_is_not_logged(router: RouterProcess) -> None:
    assert SECRET not in router.log
