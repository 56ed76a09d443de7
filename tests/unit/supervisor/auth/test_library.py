"""Provider libsasl2: logins with passwords of a sasldb, offers, and its use by several threads."""

import asyncio
import threading
from ctypes import c_void_p
from types import SimpleNamespace

import pytest

from sluice.router.sasl.mechanism import Failure
from sluice.router.sasl.scram import ScramClient
from sluice.supervisor.auth import library
from sluice.supervisor.auth.library import LOG_ERR, LOG_PASS, Library, LibraryError, LibraryExchange, _Mutexes
from sluice.supervisor.auth.messages import Configure, LibrarySettings, LoginAccepted, LoginRefused
from tests import sasldb
from tests.unit.supervisor.auth.test_process import run
from tests.unit.supervisor.auth.waiting import soon

pytestmark = pytest.mark.starts


@sasldb.needed()
class TestLibrary:
    """libsasl2 with a sasldb of its own."""

    def log_in(self, tmp_path, test, **options):
        sasldb.make(tmp_path, {"guest": "secret"}, **options)
        sasldb.make(tmp_path, {"test": "password"}, realm="domain.com", **options)
        run(test, Configure(serial=1, library=LibrarySettings(name="qdrouterd", folder=str(tmp_path))))

    def test_library_checks_plain_passwords(self, tmp_path):
        """The logins follow security.md S-3, S-6, S-8."""

        async def test(client):
            options = {"users": None, "library": True}
            answer = await client.plain("guest", "secret", **options)
            assert isinstance(answer, LoginAccepted)
            assert answer.user == "guest"
            answer = await client.plain("test@domain.com", "password", **options)
            assert answer.user == "test@domain.com"
            answer = await client.plain("guest", "wrong", **options)
            assert answer.text == "SASL(-13): authentication failure: Password verification failed"
            answer = await client.plain("test", "password", **options)  # user of another realm
            assert isinstance(answer, LoginRefused)

        self.log_in(tmp_path, test)

    def test_library_offer_is_limited(self, tmp_path):
        """The offer is limited by mech_list, then by the listener (security.md S-4)."""

        async def test(client):
            options = {"users": None, "library": True}
            _, replies = await client.begin(**options)
            assert sorted(replies[0].mechanisms) == ["ANONYMOUS", "PLAIN", "SCRAM-SHA-1"]
            _, replies = await client.begin(**options, anonymous=False, mechanisms=["ANONYMOUS", "PLAIN"])
            assert replies[0].mechanisms == ["PLAIN"]
            _, replies = await client.begin(**options, external="CN=a")
            assert "EXTERNAL" in replies[0].mechanisms

        self.log_in(tmp_path, test, mechanisms="ANONYMOUS PLAIN EXTERNAL SCRAM-SHA-1")

    def test_library_supports_scram(self, tmp_path):
        async def test(client):
            number, replies = await client.begin(users=None, library=True)
            scram = ScramClient("SCRAM-SHA-1", "test@domain.com", "password")
            answer = await client.ask(lambda: client.process.init(number, "SCRAM-SHA-1", scram.response), replies)
            answer = await client.ask(lambda: client.process.step(number, scram.step(answer.octets)), replies)
            answer = await client.ask(lambda: client.process.step(number, scram.step(answer.octets)), replies)
            assert isinstance(answer, LoginAccepted)
            assert answer.user == "test@domain.com"
            scram.finish(None)

        self.log_in(tmp_path, test)

    def test_simultaneous_logins_are_all_answered(self, tmp_path):
        """Locks of the library come from this process: several threads use it."""

        async def test(client):
            options = {"users": None, "library": True}
            passwords = ["secret" if index % 2 else "wrong" for index in range(40)]
            logins = [client.plain("guest", each, host=str(at), **options) for at, each in enumerate(passwords)]
            answers = await asyncio.gather(*logins)
            assert [isinstance(each, LoginAccepted) for each in answers] == [bool(index % 2) for index in range(40)]

        self.log_in(tmp_path, test)

    def test_changed_library_settings_restart_process(self, tmp_path):
        async def test(client):
            await soon(lambda: client.configured)
            first = client.process.pid
            client.process.configure(Configure(serial=2, library=LibrarySettings(name="other", folder=str(tmp_path))))
            await soon(lambda: len(client.configured) == 2)
            assert client.process.pid != first

        self.log_in(tmp_path, test)


# -- Without the library


def test_missing_library_is_an_error(monkeypatch):
    monkeypatch.setattr(library, "FILE", "libnone.so.2")
    with pytest.raises(LibraryError, match=r"^libnone\.so\.2 cannot be loaded: "):
        Library(LibrarySettings(name="qdrouterd"), print)


def test_library_without_needed_function_is_an_error(monkeypatch):
    monkeypatch.setattr(library, "FILE", "libc.so.6")
    with pytest.raises(LibraryError, match=r"^libc\.so\.6 cannot be loaded: .*sasl_set_mutex"):
        Library(LibrarySettings(name="qdrouterd"), print)


@pytest.mark.parametrize(
    ("level", "logged"), [(LOG_ERR, ["warning"]), (LOG_ERR + 1, ["debug"]), (LOG_PASS - 1, ["debug"]), (LOG_PASS, [])]
)
def test_library_messages_with_passwords_are_not_logged(level, logged):
    made = Library.__new__(Library)  # the library can be initialised only once in a process
    lines: list[tuple[str, str]] = []
    vars(made)["_log"] = lambda *line: lines.append(line)
    assert made._line(None, level, b"text \n") == 0
    assert lines == [(each, "libsasl2: text") for each in logged]


def test_closed_exchange_is_disposed_of_once_and_fails():
    disposed: list[object] = []
    made = LibraryExchange(SimpleNamespace(sasl_dispose=disposed.append), c_void_p(1))
    made.close()
    made.close()
    assert len(disposed) == 1
    assert isinstance(made.step("PLAIN", b""), Failure)


def test_mutex_of_library_blocks_second_thread():
    """Several threads use the library at the same time."""
    new, lock, unlock, free = _Mutexes().procs
    first, second = new(), new()
    assert first != second
    assert (lock(first), lock(second)) == (0, 0)
    locked = threading.Event()

    def wait_for_lock():
        lock(first)
        locked.set()

    thread = threading.Thread(target=wait_for_lock, daemon=True)
    thread.start()
    assert not locked.wait(0.05)
    unlock(first)
    assert locked.wait(10)
    thread.join()
    for each in (first, second):
        free(each)
