"""The router's client over TLS with each mechanism (security.md 2 and 3)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.client import Accepted, Backoff, ConnectionFailedError, Message, Tls, aconnect, connect
from sluice.router.sasl.scram import ScramClient
from sluice.router.sasl.verifiers import BOUND_MECHANISMS
from tests.peer.logins import SCRAM, token
from tests.peer.pki import KEY_PASSWORD, Pki, pki
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section
from tests.system.secured import PASSWORD, USER, logins, sections

PATIENCE = 20.0
LOGIN = (USER, PASSWORD)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def _router(tmp_path_factory: pytest.TempPathFactory, made: Pki) -> Iterator[RouterProcess]:
    folder = tmp_path_factory.mktemp("secured")
    router = RouterProcess(folder, sections(folder, made), 3)
    router.start()
    yield router
    router.stop()


@pytest.fixture
def router(_router: RouterProcess, request: pytest.FixtureRequest) -> RouterProcess:
    request.node.routers = [_router]
    return _router


def url(router: RouterProcess, name: str, user: str = "") -> str:
    return f"amqps://{user}localhost:{router.ports[name]}"


def trusting(made: Pki, **more: Any) -> Tls:
    return Tls(ca_file=made.trusted, **more)


def with_certificate(made: Pki) -> Tls:
    return trusting(made, certificate=made.client.certificate, key=made.client.key)


#: Listener, options of `connect` besides TLS, expected user and mechanism.
LOGIN_CASES = [
    ("people", {"login": LOGIN}, (USER, SCRAM[0])),
    *(("people", {"login": LOGIN, "mechanisms": [name]}, (USER, name)) for name in (*SCRAM[1:], "PLAIN")),
    ("tokens", {"token": token}, ("alice", "OAUTHBEARER")),
    ("anybody", {}, ("anonymous", "ANONYMOUS")),
    ("anybody", {"mechanisms": ["ANONYMOUS"], "login": LOGIN}, ("anonymous", "ANONYMOUS")),
]


@pytest.mark.parametrize(("name", "options", "seen"), LOGIN_CASES)
def test_mechanism_of_each_listener_logs_in(
    router: RouterProcess, made: Pki, name: str, options: dict[str, Any], seen: tuple[str, str]
) -> None:
    where = url(router, name)
    with connect(where, timeout=PATIENCE, container="c", tls=trusting(made), **options):
        assert logins(router)["c"] == (*seen, True)

    async def main() -> None:
        async with await aconnect(where, timeout=PATIENCE, container="a", tls=trusting(made), **options):
            assert (await asyncio.to_thread(logins, router))["a"] == (*seen, True)

    asyncio.run(main())


def test_user_and_password_in_url_are_used(router: RouterProcess, made: Pki) -> None:
    where = url(router, "people", f"{USER}:{PASSWORD}@")
    with connect(where, timeout=PATIENCE, container="u", tls=trusting(made)):
        assert logins(router)["u"] == (USER, SCRAM[0], True)
    bare = f"amqp://{USER}:{PASSWORD}@127.0.0.1:{router.ports['bare']}"
    with pytest.raises(ConnectionFailedError, match="the peer offers PLAIN; .*PLAIN needs TLS"):
        connect(bare, timeout=PATIENCE)
    with connect(bare, timeout=PATIENCE, container="b", allow_insecure_mechs=True):
        assert logins(router)["b"] == (USER, "PLAIN", False)


def test_client_certificate_logs_in(router: RouterProcess, made: Pki) -> None:
    """The key may have a password. Without certificate the router refuses the client, and the error says so."""
    where = url(router, "certificates")
    locked = trusting(made, certificate=made.server.certificate, key=made.locked_key(), password=KEY_PASSWORD)
    for tls, user in ((with_certificate(made), "127.0.0.1"), (locked, "localhost")):
        with connect(where, timeout=PATIENCE, container="e", tls=tls):
            assert logins(router)["e"] == (user, "EXTERNAL", True)
    with pytest.raises(ConnectionFailedError, match="TLS: .*certificate"):
        connect(where, timeout=PATIENCE, tls=trusting(made))
    wrong = trusting(made, certificate=made.server.certificate, key=made.locked_key(), password="another")
    with pytest.raises(ConnectionFailedError, match="locked.key: TLS: "):
        connect(where, tls=wrong)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("people", {"login": (USER, "wrong")}, r"Authentication failed \[mech=SCRAM-SHA-512\]"),
        ("people", {"login": (USER, "wrong"), "mechanisms": ["PLAIN"]}, r"Authentication failed \[mech=PLAIN\]"),
        ("people", {}, f"the peer offers {' '.join((*BOUND_MECHANISMS, *SCRAM))} PLAIN; usable here: ANONYMOUS"),
        ("tokens", {"token": token(exp=1)}, "the server refuses the token: invalid_token"),
        ("anybody", {"login": LOGIN}, "the peer offers ANONYMOUS"),
    ],
)
def test_refused_login_is_not_retried(
    router: RouterProcess, made: Pki, name: str, options: dict[str, Any], text: str
) -> None:
    """A failed login would fail again, so there is no retry."""
    again = Backoff(first=0.01)
    with pytest.raises(ConnectionFailedError, match=text) as caught:
        connect(url(router, name), timeout=PATIENCE, reconnect=again, tls=trusting(made), **options)
    assert caught.value.condition == "amqp:unauthorized-access"

    async def main() -> None:
        with pytest.raises(ConnectionFailedError, match=text):
            await aconnect(url(router, name), timeout=PATIENCE, reconnect=again, tls=trusting(made), **options)

    asyncio.run(main())


def test_server_certificate_is_verified(
    router: RouterProcess, made: Pki, tmp_path_factory: pytest.TempPathFactory
) -> None:
    others = pki(tmp_path_factory.getbasetemp(), "others")
    cases = [
        (url(router, "anybody"), Tls(ca_file=others.trusted), "is not trusted: "),
        (url(router, "anybody"), None, "is not trusted: "),
        (url(router, "anybody"), trusting(made, server_name="other.example"), "Hostname mismatch"),
        (url(router, "misnamed"), trusting(made), "Hostname mismatch"),
        (f"amqps://127.0.0.1:{router.port}", trusting(made), "TLS: "),
    ]
    for where, tls, text in cases:
        with pytest.raises(ConnectionFailedError, match=text):
            connect(where, timeout=PATIENCE, reconnect=None if where.endswith(str(router.port)) else Backoff(), tls=tls)
        with pytest.raises(ConnectionFailedError, match=text):
            asyncio.run(aconnect(where, timeout=PATIENCE, tls=tls))
    for tls in (
        trusting(made, verify_host=False, server_name="other.example"),
        trusting(made, server_name="localhost"),
    ):
        with connect(f"amqps://127.0.0.1:{router.ports['anybody']}", timeout=PATIENCE, tls=tls) as connection:
            assert connection.remote["container"]
    # A list of URLs: the next URL is tried.
    urls = [f"amqps://127.0.0.1:{router.port}", url(router, "anybody")]
    with connect(urls, timeout=PATIENCE, tls=trusting(made)) as connection:
        assert connection.remote["container"]


def test_messages_over_tls_arrive(router: RouterProcess, made: Pki) -> None:
    """Small messages and one of many TLS records."""
    options: dict[str, Any] = {"timeout": PATIENCE, "login": LOGIN, "tls": trusting(made)}
    large = b"x" * 3_000_000
    with connect(url(router, "people"), **options) as taking, connect(url(router, "people"), **options) as giving:
        receiver, sender = taking.receiver("balanced.tls", window=20), giving.sender("balanced.tls")
        sendings = [sender.state.send(Message(number)) for number in range(100)]
        giving.poll()
        for number in range(100):
            delivery = receiver.receive(timeout=PATIENCE)
            assert delivery.message.body == number
            delivery.accept()
        giving.wait(lambda: all(sending.done for sending in sendings), PATIENCE)
        assert {sending.result() for sending in sendings} == {Accepted()}
        sender.send(large, settled=True, timeout=PATIENCE)
        assert receiver.receive(timeout=PATIENCE).octets == large

    async def main() -> None:
        async with await aconnect(url(router, "people"), **options) as connection:
            receiver = await connection.receiver("balanced.tls", timeout=PATIENCE)
            sender = await connection.sender("balanced.tls", timeout=PATIENCE)
            await sender.send(large, settled=True, timeout=PATIENCE)
            assert (await receiver.receive(timeout=PATIENCE)).octets == large

    asyncio.run(main())


def test_scram_computation_does_not_block_event_loop(
    router: RouterProcess, made: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may ask for millions of iterations, which are computed outside of the event loop."""
    computing, may_end = threading.Event(), threading.Event()
    step = ScramClient.step

    def slow(self: ScramClient, challenge: bytes) -> bytes:
        if self.computes:
            computing.set()
            assert may_end.wait(PATIENCE)
        return step(self, challenge)

    monkeypatch.setattr(ScramClient, "step", slow)

    async def main() -> None:
        opening = asyncio.ensure_future(
            aconnect(url(router, "people"), tls=trusting(made), login=LOGIN, timeout=PATIENCE)
        )
        while not computing.is_set():
            await asyncio.sleep(0.01)
        may_end.set()  # the event loop runs while the other thread computes
        async with await opening as connection:
            assert connection.remote["container"]

    asyncio.run(main())


def on_ports_of(first: RouterProcess, given: list[Section]) -> list[Section]:
    """Return the sections for another router on the same ports."""
    return [
        (kind, {**more, "port": first.ports[more.get("name", "")]} if kind == "listener" else more)
        for kind, more in given
    ]


def test_reconnect_repeats_tls_and_login(start: Start, made: Pki, tmp_path: Any) -> None:
    """A reconnect repeats TLS and SCRAM, and asks for a new token."""
    given = sections(tmp_path, made)
    first = start(given)
    fixed = on_ports_of(first, given)
    tokens: list[str] = []

    def fresh() -> str:
        tokens.append(token())
        return tokens[-1]

    options: dict[str, Any] = {"timeout": PATIENCE, "reconnect": Backoff(first=0.05, most=0.5), "tls": trusting(made)}
    by_login = connect(url(first, "people"), container="login", login=LOGIN, **options)
    by_token = connect(url(first, "tokens"), container="token", token=fresh, **options)
    with by_login, by_token:
        senders = [each.sender("balanced.a", timeout=PATIENCE) for each in (by_login, by_token)]
        receiver = by_login.receiver("balanced.a", timeout=PATIENCE)
        assert receiver.address == "balanced.a"
        first.stop()
        for connection, sender in zip((by_login, by_token), senders, strict=True):
            while sender.state.attached:
                connection.poll(0.02)
        second = start(fixed)
        for connection, sender in zip((by_login, by_token), senders, strict=True):
            while not sender.state.attached:
                connection.poll(0.02)
        seen = logins(second)
        assert seen["login"] == (USER, SCRAM[0], True)
        assert seen["token"] == ("alice", "OAUTHBEARER", True)
    assert len(tokens) == 2


def test_asyncio_reconnect_repeats_tls_and_login(start: Start, made: Pki, tmp_path: Any) -> None:
    """An asyncio client reconnects with TLS, SCRAM and a new token while a task receives."""
    given = sections(tmp_path, made)
    first = start(given)
    fixed = on_ports_of(first, given)
    tokens: list[str] = []

    def fresh() -> str:
        tokens.append(token())
        return tokens[-1]

    async def main() -> None:
        again = Backoff(first=0.05, most=0.5)
        options: dict[str, Any] = {"timeout": PATIENCE, "reconnect": again, "tls": trusting(made)}
        taking = await aconnect(url(first, "tokens"), container="token", token=fresh, **options)
        giving = await aconnect(url(first, "people"), container="login", login=LOGIN, **options)
        async with taking, giving:
            receiver = await taking.receiver("balanced.a", timeout=PATIENCE)
            sender = await giving.sender("balanced.a", timeout=PATIENCE)
            received = asyncio.ensure_future(receiver.receive(timeout=2 * PATIENCE))
            first.stop()
            while receiver.state.attached or sender.state.attached:
                await asyncio.sleep(0.02)
            second = await asyncio.to_thread(start, fixed)
            await sender.send(Message("again"), settled=True, timeout=PATIENCE)
            assert (await received).message.body == "again"
            seen = await asyncio.to_thread(logins, second)
        assert seen["login"] == (USER, SCRAM[0], True)
        assert seen["token"] == ("alice", "OAUTHBEARER", True)

    asyncio.run(main())
    assert len(tokens) == 2
