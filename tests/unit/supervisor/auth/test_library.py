"""Provider libsasl2: logins with passwords of a sasldb, offers, and its use by several threads."""

import asyncio

import pytest

from router.sasl.scram import ScramClient
from supervisor.auth.messages import Configure, LibrarySettings, LoginAccepted, LoginRefused
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
