"""Token keys from a URL: the trusted server, and the messages while the keys are unavailable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.peer.frames import SASL_HEADER
from tests.peer.logins import ISSUER, token
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki, pki
from tests.system.fixtures import Start
from tests.system.http import WEB, get
from tests.system.router import Section, listener, poll
from tests.system.security.tokens import issuer, open_with

pytestmark = pytest.mark.adversarial


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@contextmanager
def serve_keys(authority: Pki, body: bytes) -> Iterator[int]:
    """Yield the port of a TLS server with a document at `/keys` and a redirect to it at all other paths."""

    class KeysHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/keys" else 302)
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), KeysHandler) as server:
        server.socket = authority.server_context(authority.server).wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_token_keys_are_read_from_trusted_url_only(
    start: Start, authority: Pki, tmp_path: Path, peers: list[AmqpPeer]
) -> None:
    """Keys are accepted from a trusted server only, and redirects are not followed."""
    issuer(tmp_path)

    def named(name: str, url: str, **attributes: Any) -> Section:
        return "tokenIssuer", {"name": name, "issuer": ISSUER, "audience": "sluice", "jwksUrl": url, **attributes}

    with serve_keys(authority, (tmp_path / "keys.json").read_bytes()) as port:
        trusted = {"caCertFile": authority.trusted}
        names = ("good", "stranger", "moved")
        router = start([
            WEB,
            listener(),
            named("good", f"https://localhost:{port}/keys", **trusted),
            named("stranger", f"https://localhost:{port}/keys"),
            named("moved", f"https://localhost:{port}/elsewhere", **trusted),
            *(listener(f"by-{name}", tokenIssuers=name, authenticatePeer=True) for name in names),
        ])  # fmt: skip
        peers.append(AmqpPeer(router.ports["by-good"]))
        open_with(peers[0], token())
        for name in names[1:]:
            peer = AmqpPeer(router.ports[f"by-{name}"])
            peers.append(peer)
            peer.header(SASL_HEADER)
            peer.frame(
                "sasl-init", mechanism="OAUTHBEARER", initial_response=f"n,,\x01auth=Bearer {token()}\x01\x01".encode()
            )
            peer.expect("sasl-mechanisms")
            peer.expect("sasl-challenge")
            peer.frame("sasl-response", response=b"\x01")
            assert peer.expect("sasl-outcome").code == 1
        router.wait_log(r"the keys of tokenIssuer moved are not available: HTTP status 302 .*mech=OAUTHBEARER")

        expected = (
            "[+] tokenIssuer good: keys read\n",
            "[!] tokenIssuer stranger: [SSL: CERTIFICATE_VERIFY_FAILED]",
            "[!] tokenIssuer moved: HTTP status 302\n",
            "readyz check passed",
        )

        def page_shows_states() -> bool:
            page = get(router.ports["web"], "/readyz").text
            return all(line in page for line in expected)

        poll(page_shows_states, "the page says what the log says")
