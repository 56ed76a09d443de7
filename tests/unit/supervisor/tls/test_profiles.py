"""TLS profiles for the workers, through changes of files and of the configuration, without a router."""

import asyncio
import time

import pytest

from sluice.router.config.diff import Change
from sluice.router.config.load import load_text
from sluice.router.control.messages import Opened, TlsFacts
from sluice.router.control.ops import CredentialsGone, CredentialsOp
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.tls.profiles import TlsProfiles, TlsStartError
from tests.peer.pki import pki

DAY = 86400


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    found = pki(tmp_path_factory.getbasetemp())
    found.issue("second", "/CN=second")
    return found


class TlsProfilesOnTable:
    """TLS profiles with a journal and without workers, so that each epoch counts as acknowledged."""

    def __init__(self, text):
        self.configuration = load_text("x.conf", text)
        self.journal = Journal()
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")}))
        self.waker = Waker()
        self.tls = TlsProfiles(self.journal, self.waker, self.log)
        self.replaced: list[str] = []
        self.tls.on_credentials_replaced(lambda config, epoch: self.replaced.append(config.name))

    async def load(self):
        self.waker.connect(asyncio.get_running_loop(), lambda: None)
        await self.tls.load(self.configuration)

    def ops(self):
        """Return the ops since the last call, and run the actions that wait for them."""
        found = []
        while (delta := self.journal.take_delta()) is not None:
            found += delta[1]
        self.journal.run_actions()
        return found

    def lines(self):
        return [entry.text for entry in self.log.recent()]

    async def change(self, text=None, entities=()):
        """Reload another text, or make a change of some entities by request."""
        old = self.configuration
        if text is not None:
            new = load_text("x.conf", text)
        else:
            gone = [each.old for each in entities if each.old is not None]
            added = [each.new for each in entities if each.new is not None]
            new = old.changed(gone, added)
        change = ConfigurationChange(old, new, entities, whole=text is not None)
        future = self.tls.gather(change)
        if future is not None:
            change.gathered[self.tls] = await future
        try:
            self.tls.prepare(change)
        except ChangeError:
            self.tls.discard(change)
            raise
        self.tls.commit(change)
        self.configuration = new
        return change


def text(authority, *more, issued=None, **attributes):
    own = issued or authority.server
    given = {"certFile": own.certificate, "privateKeyFile": own.key, **attributes}
    lines = "".join(f"{name}: {value}\n" for name, value in given.items())
    return f"sslProfile {{\nname: p\n{lines}}}\n" + "".join(more)


LISTENER = "listener {\nport: 1\nsslProfile: p\n}\n"


def run(scenario):
    asyncio.run(scenario())


def test_profile_is_loaded_at_start(authority):
    async def scenario():
        setup = TlsProfilesOnTable(text(authority, LISTENER))
        await setup.load()
        (op,) = setup.ops()
        assert (op.name, op.credentials.certificates) == ("p", authority.server.certificate.read_text())
        assert (len(op.credentials.ticket_key), setup.tls.snapshot_ops()) == (80, [op])
        assert "Created SSL Profile with name p " in setup.lines()
        assert setup.tls.states() == [("p", True, True, "in use, the certificate expires in 364 days")]

    run(scenario)


# security.md T-24.
def test_missing_name_mapping_stops_start(authority):
    async def scenario():
        setup = TlsProfilesOnTable(text(authority, uidFormat="n", uidNameMappingFile="/none"))
        with pytest.raises(TlsStartError, match="uidNameMappingFile /none: No such file or directory"):
            await setup.load()

    run(scenario)


def test_reload_reads_certificate_files_again(authority, tmp_path):
    certificate, key = tmp_path / "crt", tmp_path / "key"

    def put(issued):
        certificate.write_bytes(issued.certificate.read_bytes())
        key.write_bytes(issued.key.read_bytes())

    async def scenario():
        put(authority.server)
        key.chmod(0o600)
        written = text(authority, LISTENER, certFile=certificate, privateKeyFile=key)
        setup = TlsProfilesOnTable(written)
        await setup.load()
        (first,) = setup.ops()
        await setup.change(written)
        assert setup.ops() == [], "nothing has changed"
        put(authority.client)
        await setup.change(written)
        (second,) = setup.ops()
        assert second.credentials.certificates == authority.client.certificate.read_text()
        assert second.credentials.ticket_key != first.credentials.ticket_key
        assert setup.replaced == ["p"]
        key.write_text("nonsense")
        await setup.change(written)
        assert setup.ops() == []
        ((name, usable, sound, problem),) = setup.tls.states()
        assert (name, usable, sound) == ("p", True, False)
        assert problem.startswith(f"privateKeyFile {key}: ")
        assert problem.endswith("; the previous credentials stay in use")
        errors = [line for line in setup.lines() if "stay in use" in line]
        await setup.change(written)
        assert [line for line in setup.lines() if "stay in use" in line] == errors, "logged once"
        put(authority.client)
        await setup.change(written)
        assert setup.ops() == [], "the files match the credentials in use again"
        assert setup.tls.held["p"].problem is None

    run(scenario)


def test_invalid_profile_update_is_refused(authority):
    async def scenario():
        setup = TlsProfilesOnTable(text(authority, LISTENER))
        await setup.load()
        setup.ops()
        old = setup.configuration.ssl_profiles[0]
        new = load_text("x.conf", text(authority, ciphers="nonsense")).ssl_profiles[0]
        with pytest.raises(ChangeError, match="ciphers nonsense"):
            await setup.change(entities=[Change("update", "sslProfile", old.identity, {}, "live", old, new)])
        assert (setup.ops(), setup.tls.held["p"].config) == ([], old)

    run(scenario)


def test_referenced_profile_stays_until_reload(authority):
    async def scenario():
        setup = TlsProfilesOnTable(text(authority, LISTENER))
        await setup.load()
        setup.ops()
        old = setup.configuration.ssl_profiles[0]
        await setup.change(entities=[Change("delete", "sslProfile", old.identity, {}, "live", old, None)])
        assert setup.ops() == []
        assert setup.tls.states()[0][1]
        await setup.change(LISTENER)
        gone, empty = setup.ops()
        assert gone == CredentialsGone("p")
        assert isinstance(empty, CredentialsOp)
        assert empty.credentials is not None
        assert empty.credentials.certificates is None
        assert setup.tls.states() == [("p", False, False, "there is no such sslProfile")]
        await setup.change("")
        assert setup.ops() == [CredentialsGone("p")]

    run(scenario)


def test_undone_change_restores_credentials(authority):
    async def scenario():
        before = text(authority, LISTENER)
        setup = TlsProfilesOnTable(before)
        await setup.load()
        setup.ops()
        certificates = setup.tls.held["p"].material.credentials.certificates
        change = await setup.change(text(authority, LISTENER, issued=authority.client))
        assert len(setup.ops()) == 1
        setup.tls.commit(ConfigurationChange(change.new, change.old, whole=True, undo=True))
        (op,) = setup.ops()
        assert op.credentials.certificates == certificates

    run(scenario)


def test_undone_change_of_other_entities_keeps_profiles(authority):
    """An error in a change that concerned no profile, or ended before its commit, restores nothing older."""

    async def scenario():
        setup = TlsProfilesOnTable("")
        await setup.load()
        await setup.change(text(authority))
        uncommitted = setup.configuration.changed([], [])
        setup.tls.commit(ConfigurationChange(uncommitted, setup.configuration, whole=True, undo=True))
        assert setup.tls.credentials("p") is not None
        await setup.change(text(authority))
        address = load_text("x.conf", "address {\nprefix: a\n}\n").addresses[0]
        made = Change("create", address.type, address.identity, {}, "live", None, address)
        change = await setup.change(entities=[made])
        undone = ConfigurationChange(change.new, change.old, whole=True, undo=True)
        setup.tls.commit(undone)
        setup.configuration = change.old
        assert setup.tls.credentials("p") is not None
        setup.tls.commit(undone)
        (profile,) = change.old.ssl_profiles
        await setup.change(entities=[Change("delete", profile.type, profile.identity, {}, "live", profile, None)])
        assert setup.tls.credentials("p") is None
        setup.tls.commit(ConfigurationChange(setup.configuration, change.old, whole=True, undo=True))
        assert setup.tls.credentials("p") is not None

    run(scenario)


def test_undone_change_forgets_uses_of_its_endpoints(authority):
    async def scenario():
        setup = TlsProfilesOnTable(text(authority))
        await setup.load()
        listener = load_text("x.conf", text(authority, LISTENER)).listeners[0]
        change = await setup.change(
            entities=[Change("create", listener.type, listener.identity, {}, "live", None, listener)]
        )
        setup.tls.commit(ConfigurationChange(change.new, change.old, whole=True, undo=True))
        setup.configuration = change.old
        (profile,) = change.old.ssl_profiles
        await setup.change(entities=[Change("delete", profile.type, profile.identity, {}, "live", profile, None)])
        assert setup.tls.credentials("p") is None, "a profile in use would be kept"

    run(scenario)


def test_expiring_certificate_is_logged(authority, monkeypatch):
    now = time.time() + DAY / 2

    async def scenario():
        setup = TlsProfilesOnTable(text(authority, LISTENER))
        await setup.load()
        warnings = []
        for days in (334, 336, 340, 358, 363, 364, 366, 367):
            monkeypatch.setattr(time, "time", lambda days=days: now + days * DAY)
            before = len(setup.lines())
            setup.tls.check_expiry("p")
            warnings.append(setup.lines()[before:])
            ((_, usable, sound, _),) = setup.tls.states()
            assert (usable, sound) == (True, days < 358)
        expires, gone = "sslProfile 'p': the certificate expires", "sslProfile 'p': the certificate has expired"
        assert warnings == [
            [], [f"{expires} in 28 days"], [], [f"{expires} in 6 days"], [], [f"{expires} in 11 hours"], [gone], [],
        ]  # fmt: skip

    run(scenario)


def test_ticket_key_changes_daily(authority, monkeypatch):
    async def scenario():
        setup = TlsProfilesOnTable(text(authority, LISTENER))
        await setup.load()
        (first,) = setup.ops()
        setup.tls.expire()
        assert setup.ops() == []
        due = setup.tls.deadline
        assert 0 < due - time.monotonic() <= DAY
        monkeypatch.setattr(time, "monotonic", lambda: due)
        setup.tls.expire()
        (second,) = setup.ops()
        assert second.credentials.ticket_key != first.credentials.ticket_key
        assert setup.tls.deadline == due + DAY
        assert setup.replaced == [], "the credentials are the same"

    run(scenario)


def test_connection_user_follows_name_mapping(authority, tmp_path):
    names = tmp_path / "names.json"
    names.write_text('{"Client": "alice"}')
    listener = "listener {\nport: 1\nsslProfile: p\nsaslMechanisms: EXTERNAL ANONYMOUS\n}\n"
    fields = [("O", "Client"), ("CN", "host")]
    tls = TlsFacts(protocol="TLSv1.3", cipher="x", ssf=256, subject="CN=host,O=Client", attributes=fields)

    def user(setup):
        connection = RegisteredConnection(7, setup.configuration.listeners[0], "", "", "")
        message = Opened(
            conn=7, container="c", hostname=None, user="worker's", mechanism="EXTERNAL", properties={}, tls=tls
        )
        return setup.tls.user_of(connection, message)

    async def scenario():
        written = text(authority, listener, caCertFile=authority.trusted, uidFormat="o", uidNameMappingFile=names)
        setup = TlsProfilesOnTable(written)
        await setup.load()
        setup.ops()
        line = f"Added profile name p, profile file location {names} to DisplayNameService"
        assert (user(setup), line in setup.lines()) == ("alice", True)
        names.write_text('{"Client": "bob"}')
        await setup.change(written)
        assert (user(setup), setup.ops()) == ("bob", [])
        names.write_text("{")
        await setup.change(written)
        assert user(setup) == "bob", "the names before"
        await setup.change(text(authority, listener, caCertFile=authority.trusted, uidFormat="ox"))
        assert user(setup) == "CN=host,O=Client"
        assert "[C7] Unrecognized component 'x' in uidFormat " in setup.lines()

    run(scenario)
