"""Client login: users of a file, libsasl2, tokens, and the requirements of a listener (security.md S-1 to S-8)."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sluice.router.sasl.scram import ScramClient
from sluice.supervisor.auth.authentication import MOST_RENEWALS
from tests import sasldb
from tests.peer.frames import AMQP_HEADER, SASL_HEADER, error_of
from tests.peer.logins import ISSUER, SCRAM, token, write_users
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.http import WEB, get, scrape
from tests.system.router import RouterProcess, Section, listener, poll
from tests.system.security.tokens import Renewal, issuer

pytestmark = pytest.mark.adversarial

LIBRARY = sasldb.needed()
REFUSED = r"\[C\d+\] Connection from 127.0.0.1:\d+ \(to 127.0.0.1:\d+\) failed: amqp:unauthorized-access "


#: Issuers with the same keys. OTHER's users have a prefix; SAME's users have the names of the first issuer's users.
OTHER, SAME = "https://other.example", "https://same.example"


def sections(folder: Path) -> list[Section]:
    write_users(folder / "users", guest="secret")
    return [
        ("saslUsers", {"name": "people-file", "file": folder / "users"}),
        issuer(folder),
        listener(),
        listener("people", saslUsers="people-file", authenticatePeer=True),
        listener("filtered", saslUsers="people-file", saslMechanisms="PLAIN ANONYMOUS NONSENSE"),
        issuer(folder, name="other", issuer=OTHER, userPrefix="other:"),
        issuer(folder, name="same", issuer=SAME),
        listener("tokens", tokenIssuers="id, other, same", authenticatePeer=True),
        WEB,
        listener("strict", authenticatePeer=True, saslMechanisms="EXTERNAL"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sasl")


@pytest.fixture(scope="module")
def _login_router(folder: Path) -> Iterator[RouterProcess]:
    started_router = RouterProcess(folder, sections(folder), 3)
    started_router.start()
    yield started_router
    started_router.stop()


@pytest.fixture
def login_router(_login_router: RouterProcess, request: pytest.FixtureRequest) -> RouterProcess:
    """Router with listeners for each kind of login."""
    request.node.routers = [_login_router]
    return _login_router


@pytest.fixture
def dial_in(login_router: RouterProcess, peers: list[AmqpPeer]) -> Any:
    def connected(name: str) -> AmqpPeer:
        peers.append(AmqpPeer(login_router.ports[name]))
        return peers[-1]

    return connected


def offered_mechanisms(peer: AmqpPeer) -> list[str]:
    assert peer.header(SASL_HEADER) == SASL_HEADER
    return [str(name) for name in peer.expect("sasl-mechanisms").sasl_server_mechanisms]


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def log_in(peer: AmqpPeer, mechanism: str, response: bytes) -> AmqpPeer:
    """Log in and open the connection."""
    assert peer.sasl(mechanism, response).code == 0
    assert peer.header() == AMQP_HEADER
    peer.frame("open", container_id="client")
    peer.expect("open")
    return peer


def user_of(login_router: RouterProcess, container: str = "client") -> dict[str, Any]:
    with AmqpPeer.opened(login_router.port) as peer:
        rows = [row for row in Management(peer).query("connection") if row["container"] == container]
        return rows[-1]


def test_mechanisms_offered_depend_on_the_listener(dial_in: Any) -> None:
    """security.md S-4."""
    assert offered_mechanisms(dial_in("people")) == [*SCRAM, "PLAIN"]
    assert offered_mechanisms(dial_in("filtered")) == ["PLAIN", "ANONYMOUS"]
    assert offered_mechanisms(dial_in("tokens")) == ["OAUTHBEARER", "XOAUTH2"]
    assert offered_mechanisms(dial_in("strict")) == []


def test_plain_login_sets_the_user(login_router: RouterProcess, dial_in: Any) -> None:
    peer = log_in(dial_in("people"), "PLAIN", plain("guest", "secret"))
    row = user_of(login_router)
    assert (row["user"], row["sasl"], row["isAuthenticated"]) == ("guest", "PLAIN", True)
    peer.close()


def test_scram_login_proves_the_server(dial_in: Any) -> None:
    """The server's proof is in the outcome."""
    peer = dial_in("people")
    offered_mechanisms(peer)
    client = ScramClient("SCRAM-SHA-512", "guest", "secret")
    peer.frame("sasl-init", mechanism="SCRAM-SHA-512", initial_response=client.response)
    peer.frame("sasl-response", response=client.step(bytes(peer.expect("sasl-challenge").challenge)))
    outcome = peer.expect("sasl-outcome")
    assert outcome.code == 0
    client.finish(bytes(outcome.additional_data))
    assert peer.header() == AMQP_HEADER


@pytest.mark.parametrize(
    ("name", "mechanism", "response", "text"),
    [
        ("people", "PLAIN", plain("guest", "wrong"), "SASL(-13): authentication failure: Password verification failed"),
        ("people", "PLAIN", plain("nobody", "x"), "SASL(-13): authentication failure: Password verification failed"),
        ("people", "PLAIN", b"\0guest\0se\0cret", "SASL(-5): bad protocol / cancel: the response must be three texts"),
        ("people", "PLAIN", b"\0guest\0", "SASL(-13): authentication failure: the user name or the password is empty"),
        ("people", "ANONYMOUS", b"", "Client mechanism not in mechanism inclusion list."),
        ("people", "CRAM-MD5", b"", "Client mechanism not in mechanism inclusion list."),
        ("strict", "PLAIN", plain("guest", "secret"), "Client mechanism not in mechanism inclusion list."),
        ("people", "SCRAM-SHA-256", b"p=tls-unique,,n=guest,r=abc", "channel binding is not supported"),
        ("people", "SCRAM-SHA-256", b"\xff", "the message is not UTF-8 text"),
    ],
)
def test_refused_login_is_logged_and_counted(
    login_router: RouterProcess, dial_in: Any, name: str, mechanism: str, response: bytes, text: str
) -> None:
    """Outcome 1, then the end of the connection; the log has the reason without the response, and the failure is
    counted (security.md S-6)."""
    seen = len(login_router.lines)
    before = scrape(login_router.ports["web"])
    peer = dial_in(name)
    assert peer.sasl(mechanism, response).code == 1
    assert peer.expect_end() == []
    tail = rf".*\(Failed to authenticate client \[mech={mechanism}\]\)$"
    login_router.wait_log(REFUSED + ".*" + re.escape(text) + tail, after=seen)
    assert "secret" not in "\n".join(login_router.lines[seen:])
    by_host = "sluice_logins_failed_by_host_total"
    counted = before.sum(by_host) + 1
    # The supervisor is notified of a login that a worker refused by itself, later than the client is.
    after = poll(
        lambda: (found := scrape(login_router.ports["web"])).sum(by_host) >= counted and found, "the failure is counted"
    )
    assert after.sum(by_host) == counted
    assert after.sum("sluice_logins_failed_total", listener=name) >= 1


def test_overlong_names_are_refused(login_router: RouterProcess, dial_in: Any) -> None:
    seen = len(login_router.lines)
    peer = dial_in("people")
    assert peer.sasl("PLAIN", plain("u" * 8000, "secret")).code == 1
    login_router.wait_log("the user name or the password is too long", after=seen)
    peer = dial_in("people")
    peer.header(SASL_HEADER)
    peer.frame("sasl-init", mechanism="PLAIN", initial_response=plain("u" * 65000, "secret"))
    peer.read_rest()


@pytest.mark.parametrize("name", ["people", "strict"])
def test_client_skipping_authentication_is_closed_silently(
    login_router: RouterProcess, dial_in: Any, name: str
) -> None:
    """security.md S-5."""
    seen = len(login_router.lines)
    peer = dial_in(name)
    peer.raw(AMQP_HEADER)
    assert peer.read_rest() == b""
    text = "failed: amqp:connection:policy-error Client skipped authentication - forbidden"
    login_router.wait_log(re.escape(text) + "$", after=seen)


def test_client_without_login_is_anonymous(login_router: RouterProcess) -> None:
    """security.md S-8."""
    with AmqpPeer.opened(login_router.port, sasl=False, container_id="skipped"):
        row = user_of(login_router, "skipped")
        assert (row["user"], row["sasl"], row["isAuthenticated"]) == ("anonymous", None, False)
    with AmqpPeer.opened(login_router.port, container_id="anonymous"):
        row = user_of(login_router, "anonymous")
        assert (row["user"], row["sasl"], row["isAuthenticated"]) == ("anonymous", "ANONYMOUS", True)


def test_token_login_sets_the_user(login_router: RouterProcess, dial_in: Any) -> None:
    peer = log_in(dial_in("tokens"), "OAUTHBEARER", f"n,,\x01auth=Bearer {token()}\x01\x01".encode())
    assert user_of(login_router)["user"] == "alice"
    peer.close()
    peer = log_in(dial_in("tokens"), "XOAUTH2", f"user=x\x01auth=Bearer {token(pad='x' * 4000)}\x01\x01".encode())
    peer.close()


def test_refused_token_is_not_logged(login_router: RouterProcess, dial_in: Any) -> None:
    seen = len(login_router.lines)
    peer = dial_in("tokens")
    offered_mechanisms(peer)
    bad = token(aud="other")
    peer.frame("sasl-init", mechanism="OAUTHBEARER", initial_response=f"n,,\x01auth=Bearer {bad}\x01\x01".encode())
    assert bytes(peer.expect("sasl-challenge").challenge) == b'{"status":"invalid_token"}'
    peer.frame("sasl-response", response=b"\x01")
    assert peer.expect("sasl-outcome").code == 1
    login_router.wait_log("the token is refused: .*mech=OAUTHBEARER", after=seen)
    assert bad not in login_router.log


def test_expired_token_closes_its_connection(dial_in: Any) -> None:
    short = token(exp=int(time.time()) + 2)
    peer = log_in(dial_in("tokens"), "XOAUTH2", f"user=x\x01auth=Bearer {short}\x01\x01".encode())
    close = peer.expect("close")
    assert error_of(close.error) == ("amqp:unauthorized-access", "the token of this connection has expired")


def test_token_renewed_keeps_the_connection(dial_in: Any) -> None:
    """Over a link to $cbs, a token of the same user is accepted and any other refused."""
    end = int(time.time()) + 3
    short = token(exp=end)
    peer = log_in(dial_in("tokens"), "XOAUTH2", f"user=x\x01auth=Bearer {short}\x01\x01".encode())
    put = Renewal(peer).put
    assert put(token(exp=int(time.time()) + 600)) == (202, "Accepted")
    assert put(token(sub="bob")) == (401, "the token is for another user")
    assert put(token(aud="other")) == (401, "the token is refused")
    assert put(token(), "delete-token")[0] == 400
    assert put(7)[0] == 400
    poll(lambda: time.time() > end + 0.5, "the first token has expired")
    peer.barrier()


def test_users_of_issuers_are_distinct(login_router: RouterProcess, dial_in: Any) -> None:
    """Policy sees a prefix in the user name, and only tokens of the same issuer renew a login."""
    shown = {ISSUER: "alice", OTHER: "other:alice", SAME: "alice"}
    with AmqpPeer.opened(login_router.port) as own:
        management = Management(own)
        for issuer_, user in shown.items():
            good = token(iss=issuer_)
            peer = log_in(dial_in("tokens"), "XOAUTH2", f"user=x\x01auth=Bearer {good}\x01\x01".encode())
            place = "{}:{}".format(*peer.socket.getsockname())
            assert management.one("connection", host=place)["user"] == user
            put = Renewal(peer).put
            for other in shown:
                answer = (202, "Accepted") if other == issuer_ else (401, "the token is for another user")
                assert put(token(iss=other)) == answer


def test_token_flood_of_one_client_is_refused(login_router: RouterProcess, dial_in: Any) -> None:
    """A few tokens of a client are checked at a time, the others are refused at once."""
    peer = log_in(dial_in("tokens"), "XOAUTH2", f"user=x\x01auth=Bearer {token()}\x01\x01".encode())
    renewal = Renewal(peer)
    (found,) = [each for each in login_router.family() if "sluice: authentication" in " ".join(each.cmdline())]
    os.kill(found.pid, signal.SIGSTOP)
    try:
        for _ in range(MOST_RENEWALS + 3):
            renewal.ask(token())
        refused = [renewal.answer() for _ in range(3)]
    finally:
        os.kill(found.pid, signal.SIGCONT)
    assert refused == [(401, "too many tokens of this connection are being checked")] * 3
    assert [renewal.answer() for _ in range(MOST_RENEWALS)] == [(202, "Accepted")] * MOST_RENEWALS
    assert renewal.put(token()) == (202, "Accepted")


def test_clients_leaving_during_login_do_no_harm(login_router: RouterProcess, dial_in: Any) -> None:
    for _ in range(5):
        peer = dial_in("people")
        peer.raw(SASL_HEADER)
        peer.drop()
        peer = dial_in("people")
        offered_mechanisms(peer)
        peer.frame("sasl-init", mechanism="PLAIN", initial_response=plain("guest", "secret"))
        peer.drop()
    log_in(dial_in("people"), "PLAIN", plain("guest", "secret")).close()


def test_changed_user_file_is_used(login_router: RouterProcess, dial_in: Any, folder: Path) -> None:
    def works(user: str, password: str) -> bool:
        return bool(dial_in("people").sasl("PLAIN", plain(user, password)).code == 0)

    try:
        write_users(folder / "users", other="new")
        poll(lambda: works("other", "new"), "the new user can log in", 30)
        assert not works("guest", "secret")
        (folder / "users").write_text("broken\n")
        text = f"[!] saslUsers people-file: {folder / 'users'}: line 1: the user has no verifier; the values read"
        poll(lambda: text in get(login_router.ports["web"], "/readyz").text, "the page shows the error", 30)
        assert works("other", "new")
    finally:
        write_users(folder / "users", guest="secret")
        poll(lambda: works("guest", "secret"), "the former user can log in", 60)


def test_entity_rows_contain_no_passwords(login_router: RouterProcess) -> None:
    with AmqpPeer.opened(login_router.port) as peer:
        management = Management(peer)
        (row,) = management.query("saslUsers")
        assert (row["name"], Path(row["file"]).name) == ("people-file", "users")
        issuer = management.one("tokenIssuer", name="id")
        assert issuer["algorithms"] is None
        assert issuer["userClaim"] == "sub"


def test_killed_authentication_process_is_replaced(login_router: RouterProcess, dial_in: Any) -> None:
    """Clients whose login is pending are refused; others are not affected, and later logins use a new process."""
    waiting = dial_in("people")
    offered_mechanisms(waiting)
    (found,) = [each for each in login_router.family() if "sluice: authentication" in " ".join(each.cmdline())]
    os.kill(found.pid, signal.SIGKILL)
    assert waiting.expect("sasl-outcome").code == 1
    assert waiting.expect_end() == []
    with AmqpPeer.opened(login_router.port) as peer:
        peer.barrier()

    def again() -> bool:
        return bool(dial_in("people").sasl("PLAIN", plain("guest", "secret")).code == 0)

    poll(again, "another process authenticates", 30)
    assert not psutil.pid_exists(found.pid)


@LIBRARY
def test_library_configuration_of_dispatch_works(start: Start, tmp_path: Path, peers: list[AmqpPeer]) -> None:
    """Cover security.md S-1 to S-4 with a configuration file as 1.19 has it."""
    sasldb.make(tmp_path, {"guest": "secret"}, name="my-router", mechanisms="PLAIN SCRAM-SHA-1 ANONYMOUS")
    sasldb.make(
        tmp_path, {"test": "password"}, name="my-router", realm="domain.com", mechanisms="PLAIN SCRAM-SHA-1 ANONYMOUS"
    )
    router = start([
        ("router", {"saslConfigDir": tmp_path, "saslConfigName": "my-router"}),
        listener(),
        listener("plain", authenticatePeer=True, saslMechanisms="PLAIN"),
        listener("all", authenticatePeer=True),
    ])  # fmt: skip

    def dial(name: str) -> AmqpPeer:
        peers.append(AmqpPeer(router.ports[name]))
        return peers[-1]

    assert offered_mechanisms(dial("plain")) == ["PLAIN"]
    assert sorted(offered_mechanisms(dial("all"))) == ["PLAIN", "SCRAM-SHA-1"]
    assert "ANONYMOUS" in offered_mechanisms(dial(""))
    log_in(dial("plain"), "PLAIN", plain("test@domain.com", "password"))
    assert user_of(router)["user"] == "test@domain.com"
    wrong = dial("plain")
    assert wrong.sasl("PLAIN", plain("test@domain.com", "wrong")).code == 1
    assert wrong.expect_end() == []
    text = (
        "SASL(-13): authentication failure: Password verification failed (Failed to authenticate client [mech=PLAIN])"
    )
    router.wait_log(REFUSED + re.escape(text) + "$")
