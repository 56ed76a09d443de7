"""Exchanges of the authentication process: offered mechanisms, choice of the provider, and independence of the
clients."""

import asyncio
import gc
import threading
import time
import warnings
from typing import Any

import pytest

from router.sasl.mechanism import Success, refused
from router.sasl.scram import ScramClient
from router.sasl.users import Users
from router.sasl.verifiers import make
from supervisor.auth import exchanges as module
from supervisor.auth.attempts import AT_ONCE, Attempts
from supervisor.auth.exchanges import Exchanges, Providers
from supervisor.auth.messages import (
    Accepted,
    Begin,
    Cancel,
    Challenge,
    Check,
    Context,
    Facts,
    Init,
    LogLine,
    Offer,
    Refused,
    Respond,
    Service,
)
from tests.unit.supervisor.auth.waiting import soon

SCRAM = ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"]
USERS = Users({"guest": {name: make(name, "secret", 4096) for name in SCRAM}})


def context(**options):
    return Context(**{"connection": 1, "host": "10.0.0.1", "users": "u", **options})


def check_token(names, token):
    return Success("alice", facts={"facts": Facts(groups=list(names))}) if token == "good" else refused("expired")


ACCOUNT = ("u", "guest")


class World:
    """Exchanges, with the messages that they send."""

    def __init__(self, providers=None, attempts=None):
        self.sent: list[Any] = []
        self.attempts = attempts or Attempts()
        users = {"u": lambda: USERS, "never": lambda: None}
        self.exchanges = Exchanges(
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
        self.exchanges.begin(Begin(self.next, context(**options)))
        found = await self.answer(self.next)
        return self.next, found.mechanisms if isinstance(found, Offer) else found

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
def test_what_is_offered(options, offered):
    """The offer follows security.md S-4."""

    async def run():
        _, found = await World().offer(**options)
        assert found == offered

    asyncio.run(run())


def test_a_service_offers_no_anonymous_where_clients_have_to_log_in(monkeypatch):
    async def begin(self):
        return ["PLAIN", "ANONYMOUS", "EXTERNAL"]

    monkeypatch.setattr("supervisor.auth.service.ServiceExchange.begin", begin)

    async def run():
        each = World(Providers(services={"s": Service(name="s", host="h", port=1)}))
        assert (await each.offer(service="s", anonymous=False))[1] == ["PLAIN", "EXTERNAL"]
        assert (await each.offer(service="s"))[1] == ["PLAIN", "ANONYMOUS", "EXTERNAL"]

    asyncio.run(run())


def test_what_is_cancelled_before_it_begins_leaves_nothing():
    async def run():
        each = World()
        each.exchanges.begin(Begin(1, context()))
        each.exchanges.cancel(Cancel(1))
        number, _ = await each.offer()
        each.exchanges.init(Init(number, "PLAIN", b"\0guest\0secret"))
        each.exchanges.cancel(Cancel(number))
        await asyncio.sleep(0)
        assert len(each.exchanges) == 0

    gc.collect()  # garbage of earlier tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(run())
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_logins():
    async def run():
        each = World()
        for mechanism, response, options, user in (
            ("PLAIN", b"\0guest\0secret", {}, "guest"),
            ("ANONYMOUS", b"", {}, "anonymous"),
            ("EXTERNAL", b"", {"external": "CN=a"}, "CN=a"),
        ):
            number, answer = await each.log_in(mechanism, response, **options)
            assert answer == Accepted(number, user, Facts(account=ACCOUNT if user == "guest" else None))
        number, answer = await each.log_in("XOAUTH2", b"user=me\x01auth=Bearer good\x01\x01", issuers=["i"])
        assert answer == Accepted(number, "alice", Facts(groups=["i"]))
        client = ScramClient("SCRAM-SHA-256", "guest", "secret")
        number, answer = await each.log_in("SCRAM-SHA-256", client.response)
        each.exchanges.respond(Respond(number, client.step(answer.octets)))
        last = await each.answer(number, 3)
        assert last.user == "guest"
        client.finish(last.additional)
        assert len(each.exchanges) == 0

    asyncio.run(run())


def test_users_of_a_file_have_its_prefix():
    async def run():
        users = {"u": lambda: USERS}
        each = World(Providers(users=users, prefixes={"u": "file:", "v": "other:"}, check_token=check_token))
        number, answer = await each.log_in("PLAIN", b"\0guest\0secret")
        assert answer == Accepted(number, "file:guest", Facts(account=ACCOUNT))
        number, answer = await each.log_in("XOAUTH2", b"user=me\x01auth=Bearer good\x01\x01", issuers=["i"])
        assert answer == Accepted(number, "alice", Facts(groups=["i"]))

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
        each = World()
        scram = ScramClient(mechanism, "guest", "secret", find_binding=lambda: binding)
        assert scram.choose([mechanism])
        number, _ = await each.offer(binding=b"b" * 32)
        each.exchanges.init(Init(number, mechanism, scram.response))
        answer = await each.answer(number, 2)
        if isinstance(answer, Challenge):
            each.exchanges.respond(Respond(number, scram.step(answer.octets)))
            answer = await each.answer(number, 3)
        assert isinstance(answer, Accepted if admitted else Refused)

    asyncio.run(run())


@pytest.mark.parametrize("present", [Users({}), USERS.with_user("other", [])])
def test_user_that_is_deleted_during_the_exchange_is_refused(present):
    async def run():
        found = [USERS]
        each = World(Providers(users={"u": lambda: found[-1]}))
        scram = ScramClient("SCRAM-SHA-256", "guest", "secret")
        number, challenge = await each.log_in("SCRAM-SHA-256", scram.response)
        found.append(present)
        each.exchanges.respond(Respond(number, scram.step(challenge.octets)))
        answer = await each.answer(number, 3)
        if "guest" in present.users:
            assert isinstance(answer, Accepted)
        else:
            assert answer == Refused(number, "SASL(-13): authentication failure: the user has been deleted")

    asyncio.run(run())


def test_refusals():
    async def run():
        each = World()
        number, answer = await each.log_in("PLAIN", b"\0guest\0wrong")
        assert answer == Refused(number, "SASL(-13): authentication failure: Password verification failed")
        number, answer = await each.log_in("CRAM-MD5", b"")
        assert answer == Refused(number, "Client mechanism not in mechanism inclusion list.")
        number, answer = await each.log_in("PLAIN", b"\0guest\0secret", mechanisms=["ANONYMOUS"])
        assert answer == Refused(number, "Client mechanism not in mechanism inclusion list.")
        number, answer = await each.log_in("OAUTHBEARER", b"n,,\x01auth=Bearer bad\x01\x01", issuers=["i"])
        assert answer == Challenge(number, b'{"status": "invalid_token"}')
        each.exchanges.respond(Respond(number, b"\x01"))
        assert isinstance(await each.answer(number, 3), Refused)
        number, answer = await each.offer(service="unknown")
        assert answer == Refused(number, "there is no authentication service 'unknown'")
        assert each.attempts.total == 2  # wrong credentials only
        assert len(each.exchanges) == 0

    asyncio.run(run())


def test_requests_that_have_no_place():
    async def run():
        each = World()
        each.exchanges.respond(Respond(7, b""))
        each.exchanges.init(Init(8, "PLAIN", b""))
        number, _ = await each.offer()
        each.exchanges.respond(Respond(number, b""))  # no mechanism is chosen yet
        each.exchanges.init(Init(number, "PLAIN", b"\0guest\0secret"))
        each.exchanges.init(Init(number, "PLAIN", b"\0guest\0secret"))  # repeated
        assert [answer.text for n in (7, 8) for answer in each.answers(n)] == ["the exchange has ended"] * 2
        await soon(lambda: any(isinstance(one, Accepted) for one in each.answers(number)))

    asyncio.run(run())


def test_a_token_on_its_own():
    async def run():
        each = World()
        each.exchanges.check(Check(1, context(issuers=["i"]), "good"))
        assert await each.answer(1) == Accepted(1, "alice", Facts(groups=["i"]))
        each.exchanges.check(Check(2, context(issuers=["i"]), "bad"))
        assert isinstance(await each.answer(2), Refused)

    asyncio.run(run())


def test_a_failure_is_delayed():
    async def run():
        each = World()
        for _ in range(3):
            each.attempts.failed("10.0.0.1")
        number, _ = await each.offer()
        begun = time.monotonic()
        each.exchanges.init(Init(number, "PLAIN", b"\0guest\0wrong"))
        await each.answer(number, 2)
        assert time.monotonic() - begun > 0.7  # fourth failure: 0.8 s, less what has faded

    asyncio.run(run())


def test_those_who_guess_do_not_delay_others(monkeypatch):
    monkeypatch.setattr("supervisor.auth.attempts.MOST_DELAY", 1e9)
    monkeypatch.setattr("supervisor.auth.attempts.FIRST_DELAY", 1e9)

    async def run():
        each = World()
        for _ in range(AT_ONCE + 1):
            each.attempts.failed("10.0.0.1")
        guessing = []
        for _ in range(3):
            number, _ = await each.offer()
            each.exchanges.init(Init(number, "PLAIN", b"\0guest\0wrong"))
            guessing.append(number)
        number, answer = await each.log_in("PLAIN", b"\0guest\0secret", host="10.0.0.2")
        assert answer == Accepted(number, "guest", Facts(account=ACCOUNT))
        for one in guessing:
            assert len(each.answers(one)) == 1
            each.exchanges.cancel(Cancel(one))
        assert len(each.exchanges) == 0

    asyncio.run(run())


def test_a_provider_that_hangs_keeps_nobody_else_waiting(monkeypatch):
    """Tokens hang, passwords do not. A waiting client is refused after the time limit, and a client beyond the threads
    at once."""
    monkeypatch.setattr(module, "STEP_SECONDS", 0.1)
    monkeypatch.setattr(module, "MOST_TOKENS", 2)
    hanging = threading.Event()

    def check(names, token):
        hanging.wait()
        return Success("late")

    async def run():
        each = World(Providers(users={"u": lambda: USERS}, check_token=check))
        numbers = []
        for _ in range(4):
            number, _ = await each.offer(issuers=["i"])
            each.exchanges.init(Init(number, "XOAUTH2", b"user=me\x01auth=Bearer x\x01\x01"))
            numbers.append(number)
        number, answer = await each.log_in("PLAIN", b"\0guest\0secret")
        assert answer == Accepted(number, "guest", Facts(account=ACCOUNT))
        texts = [(await each.answer(one, 2)).text for one in numbers]
        assert texts[:2] == ["SASL(-8): the provider did not answer in time"] * 2
        assert all("no thread for the provider" in text for text in texts[2:])
        hanging.set()

    asyncio.run(run())


def test_a_client_that_does_not_go_on_is_forgotten(monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.02)

    async def run():
        each = World()
        number, _ = await each.offer()
        assert await each.answer(number, 2) == Refused(number, "the client did not respond in time")
        assert len(each.exchanges) == 0

    asyncio.run(run())


def test_the_number_of_exchanges_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_EXCHANGES", 2)

    async def run():
        each = World()
        await each.offer()
        await each.offer()
        _, third = await each.offer()
        assert third.text == "too many clients log in at the same time"
        for number in (1, 2):
            each.exchanges.cancel(Cancel(number))

    asyncio.run(run())


def test_a_fault_of_ours_refuses_one_client():
    def broken():
        raise ZeroDivisionError

    async def run():
        each = World(Providers(users={"u": broken}))
        number, answer = await each.offer()
        assert answer == Refused(number, "internal error")
        assert [line.level for line in each.sent if isinstance(line, LogLine)] == ["critical"]

    asyncio.run(run())


def test_a_service_that_is_gone_is_logged():
    """The log line follows security.md A-5."""

    async def run():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        service = Service(name="s", host="127.0.0.1", port=port)
        each = World(Providers(services={"s": service}))
        number, answer = await each.offer(service="s")
        assert answer == Refused(number, "")
        (line,) = [line for line in each.sent if isinstance(line, LogLine)]
        assert (line.module, line.level) == ("AUTHSERVICE", "warning")
        assert line.text.startswith("Downstream disconnected: proton:io Connection refused")

    asyncio.run(run())
