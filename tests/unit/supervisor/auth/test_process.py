"""The real authentication process and the supervisor's client of it."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.sasl.scram import ScramClient
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make
from sluice.supervisor.auth.client import AuthenticationProcess
from sluice.supervisor.auth.messages import (
    Configure,
    ExchangeContext,
    LoginAccepted,
    LoginChallenge,
    LoginOffer,
    LoginRefused,
    TokenIssuer,
    UsersFile,
    UsersMissing,
    UsersRead,
)
from tests.unit.supervisor.auth.waiting import soon

pytestmark = pytest.mark.starts

# Program of an authentication process that answers each request but the second.
UNANSWERED_SECOND_REQUEST = """
import socket, sys
from sluice.supervisor.auth.messages import MAX_MESSAGE, BeginExchange, LoginOffer, decode_request, encode
from sluice.supervisor.children.framing import MessageSplitter, pack

ours = socket.socket(fileno=int(sys.argv[1]))
reader = MessageSplitter(MAX_MESSAGE)
while octets := ours.recv(65536):
    for each in map(decode_request, reader.feed(octets)):
        if isinstance(each, BeginExchange) and each.exchange != 2:
            ours.sendall(pack(encode(LoginOffer(each.exchange, ["PLAIN"]))))
"""

QUIET = LogSettings(modules={"DEFAULT": ModuleSettings(mask=0)})


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users"
    verifiers = [make(name, "secret", 4096) for name in ("SCRAM-SHA-256", "SCRAM-SHA-1")]
    path.write_text(Users({}).with_user("guest", verifiers).text())
    return path


class AuthenticationRequester:
    """Supervisor's end of the authentication process, reduced to what the tests need."""

    def __init__(self, configuration, command=None):
        self.log = ProcessLog(QUIET)
        self.configured: list[Any] = []
        loop = asyncio.get_running_loop()
        self.users: list[Any] = []
        self.process = AuthenticationProcess(
            loop, "sluice", self.log, self.configured.append, command, on_users=self.users.append
        )
        self.process.configure(configuration)

    async def ask(self, call, replies):
        count = len(replies)
        call()
        await soon(lambda: len(replies) > count)
        return replies[-1]

    async def begin(self, **options):
        replies: list[Any] = []
        number = self.process.begin(
            ExchangeContext(**{"connection": 1, "host": "h", "users": "u", **options}), replies.append
        )
        await soon(lambda: replies)
        return number, replies

    async def plain(self, user, password, **options):
        number, replies = await self.begin(**options)
        response = f"\0{user}\0{password}".encode()
        return await self.ask(lambda: self.process.init(number, "PLAIN", response), replies)


def run(test, configuration, **options):
    async def body():
        client = AuthenticationRequester(configuration, **options)
        try:
            await test(client)
        finally:
            client.process.stop()
        assert client.process.pid is None

    asyncio.run(body())


def configuration(users, serial=1, **options):
    return Configure(serial=serial, users=[UsersFile("u", str(users))], **options)


def test_logins_by_scram_and_plain_are_answered(users):
    async def test(client):
        number, replies = await client.begin()
        assert replies[0] == LoginOffer(number, ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "ANONYMOUS"])
        scram = ScramClient("SCRAM-SHA-256", "guest", "secret")
        answer = await client.ask(lambda: client.process.init(number, "SCRAM-SHA-256", scram.response), replies)
        assert isinstance(answer, LoginChallenge)
        last = await client.ask(lambda: client.process.step(number, scram.step(answer.octets)), replies)
        assert isinstance(last, LoginAccepted)
        assert last.user == "guest"
        scram.finish(last.additional)
        assert isinstance(await client.plain("guest", "wrong"), LoginRefused)
        assert client.process.exchanges == 0
        assert [(each.serial, each.problems) for each in client.configured] == [(1, [])]

    run(test, configuration(users))


def test_process_has_own_name_priority_and_limits(users):
    async def test(client):
        await client.begin()
        process = Path(f"/proc/{client.process.pid}")
        assert b"sluice: authentication" in process.joinpath("cmdline").read_bytes()
        assert process.joinpath("comm").read_text() == "sluice-auth\n"
        assert os.getpriority(os.PRIO_PROCESS, client.process.pid) > os.getpriority(os.PRIO_PROCESS, os.getpid())
        limits = process.joinpath("limits").read_text()
        assert ["Max", "core", "file", "size", "0", "0"] in [line.split()[:6] for line in limits.splitlines()]

    run(test, configuration(users))


def test_changed_users_file_is_used(users):
    async def test(client):
        assert isinstance(await client.plain("guest", "secret"), LoginAccepted)
        users.write_text(Users({}).with_user("other", [make("SCRAM-SHA-256", "new", 4096)]).text())
        while not isinstance(await client.plain("other", "new", host="another"), LoginAccepted):
            pass
        assert isinstance(await client.plain("guest", "secret"), LoginRefused)

    run(test, configuration(users))


def _replace_file(path, text):
    """Replace a file atomically. A file written in place would be seen empty, which is a change of its own."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_users_missing_in_new_file_are_reported(users):
    async def test(client):
        await soon(lambda: client.users == [UsersRead("u")])
        client.process.confirm("u", ["guest", "other"])
        client.process.confirm("unknown", ["guest"])
        await soon(lambda: client.users[1:] == [UsersMissing("u", ["other"])])
        _replace_file(users, Users({}).text())
        await soon(lambda: client.users[2:] == [UsersRead("u")])
        names = [f"user{number}" for number in range(300)]
        client.process.confirm("u", names)
        await soon(lambda: len(client.users) == 5)
        assert [name for each in client.users[3:] for name in each.users] == names
        _replace_file(users, "guest\n")  # the content read before stays in force
        await soon(lambda: "the user has no verifier" in client.process.states[0].text)
        assert len(client.users) == 5

    run(test, configuration(users))


def test_configuration_problems_are_reported(users, tmp_path):
    async def test(client):
        await soon(lambda: client.configured)
        assert client.configured[0].problems == [("saslUsers", "u", f"{users}: line 1: the user has no verifier")]
        users.write_text("")
        client.process.configure(configuration(users, 2))
        await soon(lambda: len(client.configured) == 2)
        assert client.configured[1].problems == []

    users.write_text("guest\n")
    run(test, configuration(users))


def test_provider_states_are_reported(users, tmp_path):
    """States report what is wrong with providers, as it changes."""

    def states(client):
        return [(each.kind, each.name, each.usable, each.sound, each.text) for each in client.process.states]

    async def test(client):
        missing = f"{keys}: No such file or directory"
        fine = [("saslUsers", "u", True, True, "in use"), ("tokenIssuer", "i", False, False, missing)]
        await soon(lambda: states(client) == fine)
        users.write_text("guest\n")
        text = f"{users}: line 1: the user has no verifier; the values read before stay in force"
        await soon(lambda: states(client)[0] == ("saslUsers", "u", True, False, text))
        client.process.configure(configuration(users, 2))
        await soon(lambda: [each[0] for each in states(client)] == ["saslUsers"])
        client.process.stop()
        assert states(client) == []

    keys = tmp_path / "keys.json"
    issuer = TokenIssuer(name="i", issuer="https://i", audiences=("a",), algorithms=("ES256",), jwks_file=str(keys))
    run(test, configuration(users, issuers=[issuer]))


def test_killed_process_is_restarted(users):
    async def test(client):
        _, replies = await client.begin()
        first = client.process.pid
        os.kill(first, signal.SIGKILL)
        await soon(lambda: len(replies) == 2)
        assert replies[1].text == "the authentication process has ended: it died"
        await soon(lambda: client.process.pid not in (None, first))
        assert isinstance(await client.plain("guest", "secret"), LoginAccepted)
        assert client.process.exchanges == 0

    run(test, configuration(users))


def test_clients_without_process_are_refused(users):
    async def test(client):
        _, replies = await client.begin()
        assert isinstance(replies[0], LoginRefused)

    def command(descriptor):
        return [sys.executable, "-c", "raise SystemExit(3)"]

    run(test, configuration(users), command=command)


def test_unstartable_process_refuses_clients(users, tmp_path):
    async def test(client):
        number, replies = await client.begin()
        assert replies == [LoginRefused(number, "the authentication process is not running")]

    run(test, configuration(users), command=lambda descriptor: [str(tmp_path / "nothing")])


def test_malformed_messages_end_process(users):
    async def test(client):
        first = client.process.pid
        await soon(lambda: client.process.pid not in (None, first))

    def command(descriptor):
        return [sys.executable, "-c", f"import os, time; os.write({descriptor}, b'\\xff' * 8); time.sleep(600)"]

    run(test, configuration(users), command=command)


def test_silent_process_is_ended(users, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.auth.client.ANSWER_SECONDS", 0.2)

    async def test(client):
        _, replies = await client.begin()
        assert replies[0].text == "the authentication process has ended: it does not answer"

    run(test, configuration(users), command=lambda descriptor: [sys.executable, "-c", "import time; time.sleep(600)"])


def test_single_unanswered_request_ends_process(users, monkeypatch, tmp_path):
    """The process is ended for the request without an answer, even while other requests are answered."""
    # The time includes the start of the process before its first answer.
    monkeypatch.setattr("sluice.supervisor.auth.client.ANSWER_SECONDS", 2)
    program = tmp_path / "deaf.py"
    program.write_text(UNANSWERED_SECOND_REQUEST)

    async def test(client):
        replies: list[Any] = []
        lost: list[Any] = []
        first = client.process.pid
        client.process.begin(ExchangeContext(connection=1, host="a", users="u"), replies.append)
        client.process.begin(ExchangeContext(connection=2, host="a", users="u"), lost.append)
        while not lost:
            client.process.begin(ExchangeContext(connection=3, host="a", users="u"), replies.append)
            await asyncio.sleep(0.02)
        assert isinstance(replies[0], LoginOffer)
        assert lost[0].text == "the authentication process has ended: it does not answer"
        assert client.process.pid != first

    run(test, configuration(users), command=lambda descriptor: [sys.executable, str(program), str(descriptor)])


def test_simultaneous_logins_are_all_answered(users):
    """There are more messages than the socket holds. None is lost, and the caller never blocks."""

    async def test(client):
        replies: list[Any] = []
        numbers = [
            client.process.begin(ExchangeContext(connection=1, host=f"h{index}", users="u"), replies.append)
            for index in range(1000)
        ]
        await soon(lambda: len(replies) == 1000)
        assert sorted(each.exchange for each in replies) == numbers
        for number in numbers:
            client.process.init(number, "PLAIN", b"\0guest\0" + b"p" * 900)
        await soon(lambda: len(replies) == 2000)
        assert all(isinstance(each, LoginRefused) for each in replies[1000:])

    run(test, configuration(users))


def test_process_without_configuration_refuses_clients(users):
    async def test(client):
        client.process.configure(None)
        _, replies = await client.begin()
        assert replies[0].text == "no authentication provider is available"

    run(test, configuration(users))
