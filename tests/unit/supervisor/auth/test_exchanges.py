"""Exchanges of the authentication process: offered mechanisms, choice of the provider, and independence of the
clients."""

import asyncio
import gc
import threading
import time
import warnings
from typing import Any

import pytest

from sluice.router.sasl.mechanism import Success, wrong_credentials
from sluice.router.sasl.scram import ScramClient
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make
from sluice.supervisor.auth import exchanges as module
from sluice.supervisor.auth.attempts import AT_ONCE, Attempts
from sluice.supervisor.auth.exchanges import Providers, SaslExchanges
from sluice.supervisor.auth.messages import (
    BeginExchange,
    CancelExchange,
    CheckTokenRequest,
    ExchangeContext,
    Facts,
    Init,
    LoginAccepted,
    LoginChallenge,
    LoginOffer,
    LoginRefused,
    LogLine,
    Respond,
    Service,
)
from tests.unit.supervisor.auth.waiting import soon

SCRAM = ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"]
USERS = Users({"guest": {name: make(name, "secret", 4096) for name in SCRAM}})


def context(**options):
    return ExchangeContext(**{"connection": 1, "host": "10.0.0.1", "users": "u", **options})


def check_token(names, token):
    return (
        Success("alice", facts={"facts": Facts(groups=list(names))})
        if token == "good"
        else wrong_credentials("expired")
    )


ACCOUNT = ("u", "guest")


class RunningExchanges:
    """Exchanges, with the messages that they send."""

    def __init__(self, providers=None, attempts=None):
        self.sent: list[Any] = []
        self.attempts = attempts or Attempts()
        users = {"u": lambda: USERS, "never": lambda: None}
        self.exchanges = SaslExchanges(
            asyncio.get_running_loop(),
            providers or Providers(users=users, check_token=check_token),
            self.attempts,
            self.sent.append,
        )
        self.next = 0

    def answers(self, number):
        return [each for each in self.sent if not isinstance(each, LogLine) and each.exchange == number]

    async def answer(self, number, count=1):
        await soon(lambda: len(self.answers(number)) >= count)
        return self.answers(number)[count - 1]

    async def offer(self, **options):
        self.next += 1
        self.exchanges.begin(BeginExchange(self.next, context(**options)))
        found = await self.answer(self.next)
        return self.next, found.mechanisms if isinstance(found, LoginOffer) else found

    async def log_in(self, mechanism, response, **options):
        number, _ = await self.offer(**options)
        self.exchanges.init(Init(number, mechanism, response))
        return number, await self.answer(number, 2)


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, [*SCRAM, "PLAIN", "ANONYMOUS"]),
        ({"anonymous": False}, [*SCRAM, "PLAIN"]),
        ({"external": "CN=a"}, ["EXTERNAL", *SCRAM, "PLAIN", "ANONYMOUS"]),
        ({"issuers": ["i"]}, [*SCRAM, "OAUTHBEARER", "XOAUTH2", "PLAIN", "ANONYMOUS"]),
        ({"users": None, "issuers": ["i"], "anonymous": False}, ["OAUTHBEARER", "XOAUTH2"]),
        ({"mechanisms": ["PLAIN", "NONSENSE", "SCRAM-SHA-1"]}, ["SCRAM-SHA-1", "PLAIN"]),
        ({"mechanisms": ["EXTERNAL"]}, []),
        ({"binding": b"b"}, ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS", *SCRAM, "PLAIN", "ANONYMOUS"]),
        ({"binding": b"b", "mechanisms": ["SCRAM-SHA-256-PLUS"]}, ["SCRAM-SHA-256-PLUS"]),
        ({"mechanisms": ["SCRAM-SHA-256-PLUS"]}, []),
        ({"users": "never"}, ["ANONYMOUS"]),
        ({"users": "unknown"}, ["ANONYMOUS"]),
        ({"users": None, "library": True}, []),
    ],
)
def test_offered_mechanisms_follow_options(options, offered):
    """The offer follows security.md S-4."""

    async def run():
        _, found = await RunningExchanges().offer(**options)
        assert found == offered

    asyncio.run(run())


def test_service_offers_no_anonymous_if_login_is_required(monkeypatch):
    async def begin(self):
        return ["PLAIN", "ANONYMOUS", "EXTERNAL"]

    monkeypatch.setattr("sluice.supervisor.auth.service.ServiceExchange.begin", begin)

    async def run():
        running = RunningExchanges(Providers(services={"s": Service(name="s", host="h", port=1)}))
        assert (await running.offer(service="s", anonymous=False))[1] == ["PLAIN", "EXTERNAL"]
        assert (await running.offer(service="s"))[1] == ["PLAIN", "ANONYMOUS", "EXTERNAL"]

    asyncio.run(run())


def test_exchange_cancelled_early_is_removed():
    async def run():
        running = RunningExchanges()
        running.exchanges.begin(BeginExchange(1, context()))
        running.exchanges.cancel(CancelExchange(1))
        number, _ = await running.offer()
        running.exchanges.init(Init(number, "PLAIN", b"\0guest\0secret"))
        running.exchanges.cancel(CancelExchange(number))
        await asyncio.sleep(0)
        assert len(running.exchanges) == 0

    gc.collect()  # garbage of earlier tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(run())
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_logins_succeed_with_each_mechanism():
    async def run():
        running = RunningExchanges()
        for mechanism, response, options, user in (
            ("PLAIN", b"\0guest\0secret", {}, "guest"),
            ("ANONYMOUS", b"", {}, "anonymous"),
            ("EXTERNAL", b"", {"external": "CN=a"}, "CN=a"),
        ):
            number, answer = await running.log_in(mechanism, response, **options)
            assert answer == LoginAccepted(number, user, Facts(account=ACCOUNT if user == "guest" else None))
        number, answer = await running.log_in("XOAUTH2", b"user=me\x01auth=Bearer good\x01\x01", issuers=["i"])
        assert answer == LoginAccepted(number, "alice", Facts(groups=["i"]))
        client = ScramClient("SCRAM-SHA-256", "guest", "secret")
        number, answer = await running.log_in("SCRAM-SHA-256", client.response)
        running.exchanges.respond(Respond(number, client.step(answer.octets)))
        last = await running.answer(number, 3)
        assert last.user == "guest"
        client.finish(last.additional)
        assert len(running.exchanges) == 0

    asyncio.run(run())


def test_users_of_file_have_its_prefix():
    async def run():
        users = {"u": lambda: USERS}
        running = RunningExchanges(
            Providers(users=users, prefixes={"u": "file:", "v": "other:"}, check_token=check_token)
        )
        number, answer = await running.log_in("PLAIN", b"\0guest\0secret")
        assert answer == LoginAccepted(number, "file:guest", Facts(account=ACCOUNT))
        number, answer = await running.log_in("XOAUTH2", b"user=me\x01auth=Bearer good\x01\x01", issuers=["i"])
        assert answer == LoginAccepted(number, "alice", Facts(groups=["i"]))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("mechanism", "binding", "admitted"),
    [
        ("SCRAM-SHA-256-PLUS", b"b" * 32, True),
        ("SCRAM-SHA-512-PLUS", b"c" * 32, False),
        ("SCRAM-SHA-256", b"b" * 32, False),  # the client claims that no better mechanism was offered
        ("SCRAM-SHA-256", None, True),
    ],
)
def test_login_is_bound_to_its_connection(mechanism, binding, admitted):
    async def run():
        running = RunningExchanges()
        scram = ScramClient(mechanism, "guest", "secret", find_binding=lambda: binding)
        assert scram.choose([mechanism])
        number, _ = await running.offer(binding=b"b" * 32)
        running.exchanges.init(Init(number, mechanism, scram.response))
        answer = await running.answer(number, 2)
        if isinstance(answer, LoginChallenge):
            running.exchanges.respond(Respond(number, scram.step(answer.octets)))
            answer = await running.answer(number, 3)
        assert isinstance(answer, LoginAccepted if admitted else LoginRefused)

    asyncio.run(run())


@pytest.mark.parametrize("present", [Users({}), USERS.with_user("other", [])])
def test_user_deleted_during_exchange_is_refused(present):
    async def run():
        found = [USERS]
        running = RunningExchanges(Providers(users={"u": lambda: found[-1]}))
        scram = ScramClient("SCRAM-SHA-256", "guest", "secret")
        number, challenge = await running.log_in("SCRAM-SHA-256", scram.response)
        found.append(present)
        running.exchanges.respond(Respond(number, scram.step(challenge.octets)))
        answer = await running.answer(number, 3)
        if "guest" in present.users:
            assert isinstance(answer, LoginAccepted)
        else:
            assert answer == LoginRefused(number, "SASL(-13): authentication failure: the user has been deleted")

    asyncio.run(run())


def test_failed_logins_are_refused_with_reason():
    async def run():
        running = RunningExchanges()
        number, answer = await running.log_in("PLAIN", b"\0guest\0wrong")
        assert answer == LoginRefused(number, "SASL(-13): authentication failure: Password verification failed")
        number, answer = await running.log_in("CRAM-MD5", b"")
        assert answer == LoginRefused(number, "Client mechanism not in mechanism inclusion list.")
        number, answer = await running.log_in("PLAIN", b"\0guest\0secret", mechanisms=["ANONYMOUS"])
        assert answer == LoginRefused(number, "Client mechanism not in mechanism inclusion list.")
        number, answer = await running.log_in("OAUTHBEARER", b"n,,\x01auth=Bearer bad\x01\x01", issuers=["i"])
        assert answer == LoginChallenge(number, b'{"status":"invalid_token"}')
        running.exchanges.respond(Respond(number, b"\x01"))
        assert isinstance(await running.answer(number, 3), LoginRefused)
        number, answer = await running.offer(service="unknown")
        assert answer == LoginRefused(number, "there is no authentication service 'unknown'")
        assert running.attempts.total == 2  # wrong credentials only
        assert len(running.exchanges) == 0

    asyncio.run(run())


def test_unexpected_requests_are_refused():
    async def run():
        running = RunningExchanges()
        running.exchanges.respond(Respond(7, b""))
        running.exchanges.init(Init(8, "PLAIN", b""))
        number, _ = await running.offer()
        running.exchanges.respond(Respond(number, b""))  # no mechanism is chosen yet
        running.exchanges.init(Init(number, "PLAIN", b"\0guest\0secret"))
        running.exchanges.init(Init(number, "PLAIN", b"\0guest\0secret"))  # repeated
        assert [answer.text for n in (7, 8) for answer in running.answers(n)] == [
            "the SASL exchange has already ended"
        ] * 2
        await soon(lambda: any(isinstance(one, LoginAccepted) for one in running.answers(number)))

    asyncio.run(run())


def test_token_check_without_login_is_answered():
    async def run():
        running = RunningExchanges()
        running.exchanges.check(CheckTokenRequest(1, context(issuers=["i"]), "good"))
        assert await running.answer(1) == LoginAccepted(1, "alice", Facts(groups=["i"]))
        running.exchanges.check(CheckTokenRequest(2, context(issuers=["i"]), "bad"))
        assert isinstance(await running.answer(2), LoginRefused)

    asyncio.run(run())


def test_failed_login_is_delayed():
    async def run():
        running = RunningExchanges()
        for _ in range(3):
            running.attempts.failed("10.0.0.1")
        number, _ = await running.offer()
        begun = time.monotonic()
        running.exchanges.init(Init(number, "PLAIN", b"\0guest\0wrong"))
        await running.answer(number, 2)
        assert time.monotonic() - begun > 0.7  # fourth failure: 0.8 s, less what has faded

    asyncio.run(run())


def test_guessing_clients_delay_no_others(monkeypatch):
    monkeypatch.setattr("sluice.supervisor.auth.attempts.MOST_DELAY", 1e9)
    monkeypatch.setattr("sluice.supervisor.auth.attempts.FIRST_DELAY", 1e9)

    async def run():
        running = RunningExchanges()
        for _ in range(AT_ONCE + 1):
            running.attempts.failed("10.0.0.1")
        guessing = []
        for _ in range(3):
            number, _ = await running.offer()
            running.exchanges.init(Init(number, "PLAIN", b"\0guest\0wrong"))
            guessing.append(number)
        number, answer = await running.log_in("PLAIN", b"\0guest\0secret", host="10.0.0.2")
        assert answer == LoginAccepted(number, "guest", Facts(account=ACCOUNT))
        for one in guessing:
            assert len(running.answers(one)) == 1
            running.exchanges.cancel(CancelExchange(one))
        assert len(running.exchanges) == 0

    asyncio.run(run())


def test_hanging_provider_delays_no_other_provider(monkeypatch):
    """Tokens hang, passwords do not. A waiting client is refused after the time limit, and a client beyond the threads
    at once."""
    monkeypatch.setattr(module, "STEP_SECONDS", 0.1)
    monkeypatch.setattr(module, "MOST_TOKENS", 2)
    hanging = threading.Event()

    def check(names, token):
        hanging.wait()
        return Success("late")

    async def run():
        running = RunningExchanges(Providers(users={"u": lambda: USERS}, check_token=check))
        numbers = []
        for _ in range(4):
            number, _ = await running.offer(issuers=["i"])
            running.exchanges.init(Init(number, "XOAUTH2", b"user=me\x01auth=Bearer x\x01\x01"))
            numbers.append(number)
        number, answer = await running.log_in("PLAIN", b"\0guest\0secret")
        assert answer == LoginAccepted(number, "guest", Facts(account=ACCOUNT))
        texts = [(await running.answer(one, 2)).text for one in numbers]
        assert texts[:2] == ["SASL(-8): the provider did not answer in time"] * 2
        assert all("no thread is free to ask the provider" in text for text in texts[2:])
        hanging.set()

    asyncio.run(run())


def test_idle_client_is_refused_and_removed(monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.02)

    async def run():
        running = RunningExchanges()
        number, _ = await running.offer()
        assert await running.answer(number, 2) == LoginRefused(number, "the client did not respond in time")
        assert len(running.exchanges) == 0

    asyncio.run(run())


def test_exchanges_are_bounded_in_number(monkeypatch):
    monkeypatch.setattr(module, "MOST_EXCHANGES", 2)

    async def run():
        running = RunningExchanges()
        await running.offer()
        await running.offer()
        _, third = await running.offer()
        assert third.text == "too many clients are logging in at the same time"
        for number in (1, 2):
            running.exchanges.cancel(CancelExchange(number))

    asyncio.run(run())


def test_internal_error_refuses_one_client():
    def broken():
        raise ZeroDivisionError

    async def run():
        running = RunningExchanges(Providers(users={"u": broken}))
        number, answer = await running.offer()
        assert answer == LoginRefused(number, "internal error")
        assert [line.level for line in running.sent if isinstance(line, LogLine)] == ["critical"]

    asyncio.run(run())


def test_unreachable_service_is_logged():
    """The log line follows security.md A-5."""

    async def run():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        service = Service(name="s", host="127.0.0.1", port=port)
        running = RunningExchanges(Providers(services={"s": service}))
        number, answer = await running.offer(service="s")
        assert answer == LoginRefused(number, "")
        (line,) = [line for line in running.sent if isinstance(line, LogLine)]
        assert (line.module, line.level) == ("AUTHSERVICE", "warning")
        assert line.text.startswith("Downstream disconnected: proton:io Connection refused")

    asyncio.run(run())
