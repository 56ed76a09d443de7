"""The sslProfiles of a router: the credentials that workers have, and the reasons for which newer ones are not used.

Workers refer to credentials by the name of the profile. A profile that listeners or connectors name but that does not
exist is created empty: a listener then refuses every connection, and a connector trusts the system's authorities
(security.md T-12, T-13). A profile that is deleted while in use keeps its credentials (security.md T-1), until the
configuration is reloaded.
"""

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from sluice.router.config.entities import (
    Configuration,
    ConnectorConfig,
    EndpointConfig,
    ListenerConfig,
    SslProfileConfig,
)
from sluice.router.control.messages import Opened, TlsFacts
from sluice.router.control.ops import Credentials, CredentialsGone, CredentialsOp, Op
from sluice.router.log import ERROR, INFO, WARNING, ProcessLog
from sluice.router.tls.expiry import ATTENTION_DAYS, DAY, WARN_DAYS, describe_expiry
from sluice.router.tls.profile import (
    CredentialUse,
    Material,
    ProfileFault,
    Remark,
    credential_use_of,
    credential_uses_of,
    read_profile,
    unknown_letter,
)
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import NEVER, LiveAttributes, Subsystem
from sluice.supervisor.tls.identity import EXTERNAL, user_of

READ_SECONDS: Final = 30.0  # timeout for reading all files of a change
MAX_READERS: Final = 4  # threads for reading
TICKET_KEY: Final = 80  # octets, as OpenSSL requires
SECRET: Final = 64
ROTATION: Final = 86400.0  # seconds for which session tickets are valid
_LEVELS: Final = {"error": ERROR, "warning": WARNING, "info": INFO}
_NOTHING: Final = Material(Credentials(), None, None, None, {}, (), None, (), b"", b"")

_Job = tuple[SslProfileConfig, frozenset[CredentialUse]]
_Jobs = Mapping[str, _Job]
Materials = Mapping[str, Material]


class RevocationListSource(Protocol):
    """Interface to the revocation lists from URLs."""

    def lists(self, config: SslProfileConfig) -> str | None:
        """Return the present lists of a profile (PEM), or None if the profile has no URLs."""

    def problem(self, name: str) -> str | None:
        """Return the problem of a profile's lists, or None."""


class TlsStartError(Exception):
    """Error that prevents the router from starting; the text is the reason."""


class CredentialsState(NamedTuple):
    """State of a profile for health checks. sound: an operator has nothing to repair. usable: peers can be served."""

    name: str
    usable: bool
    sound: bool
    text: str


class ProfileState:
    """Profile, with the material in use and the newest that was read. Owner: TlsProfiles.

    config: None if listeners or connectors name a profile that does not exist. material: material in use. newest:
    material that was read last, in use or not; `faults` are its faults. problem: reason for which `newest` is not
    used. early: the only reason is that its certificate is not valid yet. stale: authorities whose revocation lists
    have expired.
    """

    __slots__ = ("config", "early", "faults", "material", "newest", "problem", "stale", "warned")

    def __init__(self, config: SslProfileConfig | None, material: Material) -> None:
        self.config = config
        self.material = material
        self.newest = material
        self.faults: Sequence[ProfileFault] = ()
        self.problem: str | None = None
        self.early = False
        self.stale: Sequence[str] = ()
        self.warned: int | None = None  # number of days before expiry of the last warning

    @property
    def usable(self) -> bool:
        """Return whether connections can be made with the material in use."""
        return self.config is not None and not self.material.faults

    def copy(self) -> "ProfileState":
        """Return a copy, from which the present state can be restored."""
        other = ProfileState(self.config, self.material)
        other.newest, other.problem, other.warned = self.newest, self.problem, self.warned
        other.faults, other.early, other.stale = self.faults, self.early, self.stale
        return other

    def judge(self, material: Material) -> Sequence[ProfileFault]:
        """Return the faults of new material. A certificate outside its validity is a fault if the one in
        use is valid.
        """
        now = time.time()
        reason = material.validity_fault(now)
        if material.faults or reason is None or not self.usable or self.material.validity_fault(now) is not None:
            return material.faults
        return [ProfileFault("certFile", self.config.certificate_file if self.config else None, reason)]


class _Undoable(NamedTuple):
    """State before a change, for its reversal after an internal error. reached: configuration after the change."""

    reached: Configuration
    held: dict[str, ProfileState]
    uses: dict[str, Counter[CredentialUse]]


class TlsProfiles(Subsystem):
    """All profiles by name. Owner: the core."""

    def __init__(self, journal: Journal, waker: Waker, log: ProcessLog) -> None:
        self.held: Final[dict[str, ProfileState]] = {}
        self._journal: Final = journal
        self._waker: Final = waker
        self._log: Final = log
        self._uses: dict[str, Counter[CredentialUse]] = {}  # uses by listeners and connectors, by name of the profile
        self._secret = os.urandom(SECRET)  # secret from which ticket keys are derived
        self._rotation = NEVER  # time at which the secret is replaced
        self._threads: Threads | None = None
        self._undoable: _Undoable | None = None  # state before the last change
        self._first: Callable[[], None] | None = None
        self._replaced: Callable[[SslProfileConfig, int], None] | None = None
        self._lists: RevocationListSource | None = None

    def use_lists(self, lists: RevocationListSource) -> None:
        """Set the source of revocation lists from URLs."""
        self._lists = lists

    def on_credentials_replaced(self, call: Callable[[SslProfileConfig, int], None]) -> None:
        """Register a callback for replaced credentials.

        Called with the profile once all workers have the new credentials, and with the epoch that carries them.
        """
        self._replaced = call

    def on_first_profile(self, call: Callable[[], None]) -> None:
        """Register a callback for the first profile."""
        self._first = call

    # Start

    async def load(self, configuration: Configuration) -> None:
        """Read the profiles that the router starts with. Raises TlsStartError."""
        jobs = _jobs(configuration)
        try:
            materials = await self._read(jobs) if jobs else {}
        except (OSError, TimeoutError) as error:
            raise TlsStartError(f"The files of sslProfiles cannot be read: {error.strerror or error}") from error
        for name, material in materials.items():
            if material.names_fault is not None:
                raise TlsStartError(f"sslProfile '{name}': {material.names_fault}")
        self._count_all(configuration)
        for name, material in materials.items():
            self._use(name, jobs[name][0], material)
        self._settle()

    # Changes of the configuration

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[Materials] | None":
        """Read the files of the changed profiles; in a reload, of all profiles."""
        jobs = _jobs(change.new) if change.whole else self._jobs_of(change)
        return self._waker.loop.create_task(self._gathered(jobs)) if jobs else None

    def _jobs_of(self, change: ConfigurationChange) -> _Jobs:
        jobs: dict[str, _Job] = {}
        added: dict[str, set[CredentialUse]] = {}
        for endpoint in _endpoints(change):
            name = endpoint.ssl_profile
            if name is not None and credential_use_of(endpoint) not in self._uses.get(name, ()):
                added.setdefault(name, set()).add(credential_use_of(endpoint))
        made = {profile.name: profile for profile in change.made(SslProfileConfig)}
        for name in {*made, *added}:
            held = self.held.get(name)
            config = made.get(name) or (None if held is None else held.config)
            if config is not None:
                jobs[name] = config, frozenset({*self._uses.get(name, ()), *added.get(name, ())})
        return jobs

    async def _gathered(self, jobs: _Jobs) -> Materials:
        try:
            return await self._read(jobs)
        except (OSError, TimeoutError) as error:
            raise ChangeError(500, f"The files of sslProfiles cannot be read: {error.strerror or error}") from error

    def prepare(self, change: ConfigurationChange) -> None:
        """Reject a change that would replace usable material by unusable, or whose file of names cannot be read."""
        materials: Materials = change.gathered.get(self, {})
        for each in change.entities:
            if isinstance(each.old, SslProfileConfig) and isinstance(each.new, SslProfileConfig):
                found, held = materials[each.new.name], self.held[each.new.name]
                faults = held.judge(found)
                if faults and held.usable:
                    raise ChangeError(400, f"sslProfile '{each.new.name}': {faults[0]}")
        if change.whole and not change.undo:
            for name, found in materials.items():
                known = self.held.get(name)
                if found.names_fault is not None and (known is None or known.material.names is None):
                    raise ChangeError(500, f"sslProfile '{name}': {found.names_fault}")

    def commit(self, change: ConfigurationChange) -> None:
        undoable, self._undoable = self._undoable, None
        if change.undo:
            # A change that failed before its commit here, or concerned no profile, has left nothing to restore.
            if undoable is not None and undoable.reached is change.old:
                self._restore(undoable)
            return
        if not any(change.concerns(kind) for kind in (SslProfileConfig, ListenerConfig, ConnectorConfig)):
            return
        materials: Materials = change.gathered.pop(self, {})
        held_before = {name: held.copy() for name, held in self.held.items()}
        uses_before = {name: Counter(uses) for name, uses in self._uses.items()}
        self._undoable = _Undoable(change.new, held_before, uses_before)
        if change.whole:
            self._count_all(change.new)
            configs = {profile.name: profile for profile in change.new.ssl_profiles}
            for name in [name for name, held in self.held.items() if held.config is not None and name not in configs]:
                self._forget(name)
        else:
            for each in change.entities:
                self._count(each.old, -1)
                self._count(each.new, 1)
            configs = {name: held.config for name, held in self.held.items() if held.config is not None}
            configs |= {profile.name: profile for profile in change.made(SslProfileConfig)}
            for gone in change.removed(SslProfileConfig):
                if not self._uses.get(gone.name):
                    self._forget(gone.name)
        for name, material in materials.items():
            self._use(name, configs[name], material)
        self._settle()

    def discard(self, change: ConfigurationChange) -> None:
        change.gathered.pop(self, None)

    def _restore(self, undoable: "_Undoable") -> None:
        """Restore the state before a change."""
        self._uses = undoable.uses
        for name in [*self.held]:
            if name not in undoable.held:
                self._forget(name)
        for name, held in undoable.held.items():
            present = self.held.get(name)
            self.held[name] = held
            if present is None or present.material.digest != held.material.digest:
                self._journal.append(self._op(name))

    def _count_all(self, configuration: Configuration) -> None:
        self._uses = {}
        for endpoint in (*configuration.listeners, *configuration.connectors):
            self._count(endpoint, 1)

    def _count(self, entity: object, step: int) -> None:
        if isinstance(entity, EndpointConfig) and entity.ssl_profile is not None:
            uses = self._uses.setdefault(entity.ssl_profile, Counter())
            uses[credential_use_of(entity)] += step
            if uses[credential_use_of(entity)] <= 0:
                del uses[credential_use_of(entity)]

    def _settle(self) -> None:
        """Create empty profiles for names without a profile, and remove those that are not in use."""
        for name, uses in self._uses.items():
            if uses and name not in self.held:
                self.held[name] = ProfileState(None, _NOTHING)
                self.held[name].problem = "there is no such sslProfile"
                text = f"sslProfile '{name}' does not exist: listeners and connectors that name it cannot use TLS"
                self._log.warning("CONN_MGR", text)
                self._journal.append(self._op(name))
        for name in [name for name, held in self.held.items() if held.config is None and not self._uses.get(name)]:
            self._forget(name)
        if self._rotation == NEVER and self.held:
            self._rotation = time.monotonic() + ROTATION
            if self._first is not None:
                self._first()

    # Files

    def read(self, names: Iterable[str]) -> "asyncio.Future[Materials]":
        """Read the files of existing profiles, in a thread."""
        jobs: dict[str, _Job] = {}
        for name in names:
            config = self.held[name].config
            if config is not None:
                jobs[name] = config, frozenset(self._uses.get(name, ()))
        return self._read(jobs)

    def take(self, config: SslProfileConfig, material: Material) -> None:
        """Use the files of a profile that have been read again, unless the profile has changed in the meantime."""
        held = self.held.get(config.name)
        if held is not None and held.config is config:
            self._use(config.name, config, material)
            self._waker.wake()

    def _read(self, jobs: _Jobs) -> "asyncio.Future[Materials]":
        if self._threads is None:
            self._threads = Threads(self._waker.loop, "sslProfile", MAX_READERS)
        lists = {name: self._lists_of(config) for name, (config, _) in jobs.items()}
        return self._threads.run(partial(_read_all, jobs, lists), READ_SECONDS)

    def _lists_of(self, config: SslProfileConfig) -> str | None:
        """Return the lists of a profile; None: it has no URLs.

        Empty until the first list has been fetched, so that no peer is trusted.
        """
        if self._lists is not None:
            return self._lists.lists(config)
        return "" if config.list_urls else None

    def _use(self, name: str, config: SslProfileConfig, material: Material) -> None:
        """Use new material, unless it has faults and the present one has none."""
        held = self.held.get(name)
        new = held is None or held.config is None
        if held is None:
            held = self.held[name] = ProfileState(None, _NOTHING)
        before, was_usable, read_before, faults_before = held.material, held.usable, held.newest, held.faults
        held.config, held.newest = config, material
        held.faults = held.judge(material)
        held.early = held.faults is not material.faults and material.valid is not None
        if new:
            self._log.info("CONN_MGR", f"Created SSL Profile with name {name} ")
            if config.uid_format is not None and config.uid_mapping_file is not None:
                text = f"Added profile name {name}, profile file location {config.uid_mapping_file}"
                self._log.info("DISPLAYNAME", f"{text} to DisplayNameService")
        self._remark(material.remarks, () if new else read_before.remarks)
        self._log_faults(held, () if new else faults_before, kept=was_usable)
        if material.names_fault is not None:
            if new or material.names_fault != read_before.names_fault:
                use = "users get the names of uidFormat" if before.names is None else "the previous names stay in use"
                self._log.error("DISPLAYNAME", f"sslProfile '{name}': {material.names_fault}; {use}")
            material = replace(material, names=before.names)
        if held.faults and was_usable:
            held.material = replace(before, names=material.names)
            return
        held.material = material
        replaced = new or material.digest != before.digest
        if replaced or material.credentials.closes_revoked != before.credentials.closes_revoked:
            epoch = self._journal.append(self._op(name))
            if replaced:
                held.warned = None
            if replaced and was_usable:
                files = material.digest_of_files != before.digest_of_files
                self._journal.call_when_acknowledged(lambda: self._in_use(config, epoch, files=files), epoch)
        self.check_expiry(name)

    def _in_use(self, config: SslProfileConfig, epoch: int, *, files: bool) -> None:
        """Report new credentials in use. files: from files; lists from URLs alone retire no connections."""
        if not files:
            self._log.info("CONN_MGR", f"sslProfile '{config.name}': new revocation lists are in use")
            return
        self._log.notice("CONN_MGR", f"sslProfile '{config.name}': new credentials are in use")
        if self._replaced is not None:
            self._replaced(config, epoch)

    def _log_faults(self, held: ProfileState, before: Iterable[ProfileFault], *, kept: bool) -> None:
        assert held.config is not None
        if not held.faults:
            if held.problem is not None:
                self._log.notice("CONN_MGR", f"sslProfile '{held.config.name}' is valid again")
            held.problem = None
            return
        held.problem = f"{held.faults[0]}" + ("; the previous credentials stay in use" if kept else "")
        for fault in held.faults:
            if fault not in before:
                name = f"sslProfile '{held.config.name}'{_at(held.config, fault)}"
                text = "the previous credentials stay in use" if kept else "connections are refused"
                self._log.error("CONN_MGR", f"{name}: {fault}; {text}")

    def _remark(self, remarks: Iterable[Remark], before: Iterable[Remark]) -> None:
        for module, level, text in remarks:
            if (module, level, text) not in before:
                self._log.write(_LEVELS[level], module, text)

    # Expiry

    def days_left(self, name: str) -> int | None:
        """Return the whole days until the first certificate of a profile expires, or None without certificates."""
        left = self._seconds_left(name)
        return None if left is None else int(left // DAY)

    def _seconds_left(self, name: str) -> float | None:
        held = self.held.get(name)
        return None if held is None or held.material.expires is None else held.material.expires - time.time()

    def states(self) -> list[CredentialsState]:
        """Return the state of each profile."""
        found = []
        for name, held in self.held.items():
            left = self._seconds_left(name)
            text = "in use" if left is None else f"in use, {describe_expiry(left)}"
            sound = held.problem is None and not held.stale and (left is None or left >= ATTENTION_DAYS * DAY)
            if held.stale:
                text += f", the revocation list of {held.stale[0]} has expired"
            missing = None if self._lists is None else self._lists.problem(name)
            if missing is not None:
                text += f", {missing}"
                sound = False
            found.append(CredentialsState(name, held.usable, sound, text if held.problem is None else held.problem))
        return found

    def credentials(self, name: str) -> Credentials | None:
        """Return the credentials in use of a profile, or None if it is not usable."""
        held = self.held.get(name)
        return held.material.credentials if held is not None and held.usable else None

    def check_expiry(self, name: str) -> None:
        """Log certificates that expire soon, once for each threshold, and revocation lists that have expired.

        Also start using newer credentials that have become valid.
        """
        held = self.held[name]
        if held.early and held.config is not None and held.newest.validity_fault(time.time()) is None:
            self.take(held.config, held.newest)
            return
        stale = held.material.stale_lists(time.time())
        for authority in stale:
            if authority not in held.stale:
                text = f"the revocation list of {authority} has expired: certificates below that authority are refused"
                self._log.error("CONN_MGR", f"sslProfile '{name}': {text}")
        held.stale = stale
        left = self._seconds_left(name)
        if left is None:
            return
        due = min((days for days in WARN_DAYS if left < days * DAY), default=None)
        due = -1 if left < 0 else due
        if due is None or due == held.warned:
            return
        held.warned = due
        self._log.write(ERROR if left < 0 else WARNING, "CONN_MGR", f"sslProfile '{name}': {describe_expiry(left)}")

    # Queries by other subsystems

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {SslProfileConfig.type: self.shown}

    def shown(self, config: SslProfileConfig) -> Mapping[str, Any]:
        """Return the attributes that management shows besides the configuration."""
        return {"expiresInDays": self.days_left(config.name)}

    def user_of(self, connection: RegisteredConnection, message: Opened) -> str | None:
        """Return the user of a connection whose open has arrived."""
        if connection.initiator is not None or message.tls is None:
            return message.user
        return self._identity(connection, message.mechanism, message.user, message.tls)

    def peer_of(self, connection: RegisteredConnection, message: Opened) -> str | None:
        """Return the identity of a peer. For a connection that the router opened, this is the server's by its
        certificate.
        """
        if connection.initiator is None:
            return self.user_of(connection, message)
        return self._identity(connection, EXTERNAL, None, message.tls)

    def _identity(
        self, connection: RegisteredConnection, mechanism: str | None, user: str | None, tls: TlsFacts | None
    ) -> str | None:
        name = connection.origin.ssl_profile
        held = None if name is None else self.held.get(name)
        uid_format = None if held is None or held.config is None else held.config.uid_format
        if mechanism == EXTERNAL and uid_format and (letter := unknown_letter(uid_format)):
            self._log.critical("SERVER", f"[C{connection.number}] Unrecognized component '{letter}' in uidFormat ")
        names = None if held is None else held.material.names
        prefix = "" if held is None or held.config is None else held.config.user_prefix
        return user_of(mechanism, user, tls, uid_format, names, prefix)

    # Workers

    def snapshot_ops(self) -> Iterable[Op]:
        return [self._op(name) for name in self.held]

    @property
    def deadline(self) -> float:
        return self._rotation

    def expire(self) -> None:
        """Replace the key of session tickets periodically."""
        if time.monotonic() >= self._rotation:
            self._rotation = time.monotonic() + ROTATION
            self._secret = os.urandom(SECRET)
            for name in self.held:
                self._journal.append(self._op(name))

    def _op(self, name: str) -> CredentialsOp:
        """Return the op for a profile. Each set of credentials has its own ticket key, so sessions are valid for no
        other set.
        """
        material = self.held[name].material
        key = hashlib.new("shake_256", self._secret + material.digest + name.encode()).digest(TICKET_KEY)  # type: ignore[call-arg]
        return CredentialsOp(name, replace(material.credentials, ticket_key=key))

    def _forget(self, name: str) -> None:
        del self.held[name]
        self._journal.append(CredentialsGone(name))


def _jobs(configuration: Configuration) -> _Jobs:
    uses = credential_uses_of(configuration)
    return {each.name: (each, frozenset(uses.get(each.name, ()))) for each in configuration.ssl_profiles}


def _read_all(jobs: _Jobs, lists: Mapping[str, str | None]) -> Materials:
    return {name: read_profile(config, uses, lists[name]) for name, (config, uses) in jobs.items()}


def _endpoints(change: ConfigurationChange) -> Iterable[EndpointConfig]:
    yield from change.made(ListenerConfig)
    yield from change.made(ConnectorConfig)


def _at(config: SslProfileConfig, fault: ProfileFault) -> str:
    """Return the text for the line of the configuration file that a fault refers to; empty if unknown."""
    line = config.lines.get(fault.attribute, config.line)
    return f" (line {line})" if line else ""
