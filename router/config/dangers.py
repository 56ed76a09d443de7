"""Search for insecure settings in a valid configuration, with advice. Only the modes of files are read."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from sluice.router.config.entities import (
    Configuration,
    ConnectorConfig,
    ListenerConfig,
    OpenTelemetryConfig,
    SaslUsersConfig,
    SslProfileConfig,
    TracingConfig,
)
from sluice.router.config.entity import EntityConfig
from sluice.router.config.password import file_of
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.websocket.origins import EVERY_ORIGIN, is_local

OLD_PROTOCOLS: Final = ("TLSv1", "TLSv1.0", "TLSv1.1")
EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")
OTHERS_WRITE, OTHERS_READ = 0o022, 0o044
_PART_OF_A_NAME: Final = re.compile(r"[A-Za-z0-9.]{1,32}=.+")


class Danger(NamedTuple):
    """Insecure setting. `worst`: reported even without --strict. `line` is None for an entity without a line."""

    worst: bool
    path: str
    line: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.path}:{self.line})" if self.line else self.text


def dangers(configuration: Configuration) -> list[Danger]:
    """Return all findings in the order of lines."""
    found = [*_of(configuration, _listener), *_of(configuration, _connector), *_of(configuration, _profile)]
    found += [*_of(configuration, _users), *_of(configuration, _vhost), *_of(configuration, _collector)]
    open_ones = [each for each in configuration.listeners if not is_local(each.host)]
    if open_ones and not configuration.policy.vhosts_enabled:
        text = f"listener '{open_ones[0].name}' is open to others, and without vhost policy every client may use every"
        text += " address and manage the router; set enableVhostPolicy: yes, with vhosts"
        found.append(_danger(configuration, open_ones[0], text))
    return sorted(found, key=lambda danger: (danger.path, danger.line or 0))


_Look = Callable[[Configuration, EntityConfig], Iterator[Danger]]


def _of(configuration: Configuration, look: _Look) -> Iterator[Danger]:
    entities: tuple[EntityConfig, ...] = (
        *configuration.listeners, *configuration.connectors, *configuration.ssl_profiles, *configuration.vhosts,
        *configuration.others,
    )  # fmt: skip
    for entity in entities:
        yield from look(configuration, entity)


def _danger(configuration: Configuration, entity: EntityConfig, text: str, *, worst: bool = False) -> Danger:
    return Danger(worst, entity.file or configuration.path, entity.line, text)


def _listener(configuration: Configuration, listener: EntityConfig) -> Iterator[Danger]:
    if not isinstance(listener, ListenerConfig):
        return
    name = f"listener '{listener.name}'"
    if listener.multi_tenant and not configuration.policy.vhosts_enabled:
        text = f"{name}: multiTenant does not isolate tenants, since clients choose their own;"
        text += " set enableVhostPolicy: yes"
        yield _danger(configuration, listener, text, worst=True)
    if EVERY_ORIGIN in listener.allowed_origins:
        text = f"{name}: allowedOrigins: * lets every web page use the listener; list the allowed origins"
        yield _danger(configuration, listener, text)
    if is_local(listener.host):
        return
    if listener.role in BETWEEN_ROUTERS:
        if not listener.authenticate_peer:
            text = f"{name}: any router may join; set authenticatePeer: yes, saslMechanisms: EXTERNAL and an sslProfile"
            yield _danger(configuration, listener, text + " with caCertFile", worst=True)
        elif not listener.allowed_routers and listener.verifies_peer:
            text = f"{name}: anyone with a certificate of the authority may join as a router; set allowedRouters"
            yield _danger(configuration, listener, text)
    elif listener.http and listener.websockets and not listener.authenticate_peer:
        text = f"{name}: anyone who can reach the listener can use the console; set authenticatePeer: yes and use TLS,"
        text += " or set host: localhost"
        yield _danger(configuration, listener, text, worst=True)
    elif not listener.authenticate_peer:
        text = f"{name}: clients need not log in; set authenticatePeer: yes,"
        text += " with saslUsers, tokenIssuers or certificates"
        everywhere = listener.host in EVERY_INTERFACE and not configuration.policy.vhosts_enabled
        yield _danger(configuration, listener, text, worst=everywhere)
    if not listener.require_encryption:
        offers = listener.sasl_mechanisms is None or "PLAIN" in listener.sasl_mechanisms
        if listener.sasl_users is not None and offers:
            text = f"{name}: passwords may be sent unencrypted; set requireSsl: yes, or saslMechanisms without PLAIN"
            yield _danger(configuration, listener, text, worst=True)
        else:
            text = f"{name}: messages may be sent unencrypted; set an sslProfile and requireSsl: yes"
            yield _danger(configuration, listener, text)
    if not listener.initial_handshake_timeout_seconds:
        text = f"{name}: silent connections are never closed; set initialHandshakeTimeoutSeconds: 30"
        yield _danger(configuration, listener, text)


def _connector(configuration: Configuration, connector: EntityConfig) -> Iterator[Danger]:
    if not isinstance(connector, ConnectorConfig):
        return
    name = f"connector '{connector.name}'"
    if connector.sasl_password is not None:
        if connector.ssl_profile is None and not is_local(connector.host):
            text = f"{name}: its password may be sent unencrypted; set an sslProfile"
            yield _danger(configuration, connector, text)
        yield from _secret(configuration, connector, f"{name}: file of saslPassword", connector.sasl_password)
    if connector.ssl_profile is not None and not connector.verify_hostname:
        text = f"{name}: anyone with a certificate of the authority can pose as {connector.host};"
        text += " set verifyHostname: yes"
        yield _danger(configuration, connector, text)


def _profile(configuration: Configuration, profile: EntityConfig) -> Iterator[Danger]:
    if not isinstance(profile, SslProfileConfig):
        return
    name = f"sslProfile '{profile.name}'"
    old = [each for each in profile.protocols if each in OLD_PROTOCOLS]
    if old:
        yield _danger(configuration, profile, f"{name}: {old[0]} is insecure; set protocols: TLSv1.2 TLSv1.3")
    if profile.key_file is not None:
        yield from _file(configuration, profile, f"{name}: privateKeyFile", profile.key_file)
    if profile.password is not None:
        yield from _secret(configuration, profile, f"{name}: file of password", profile.password)


def _users(configuration: Configuration, users: EntityConfig) -> Iterator[Danger]:
    if isinstance(users, SaslUsersConfig):
        yield from _file(configuration, users, f"saslUsers '{users.name}': file", users.users_file)


def _collector(configuration: Configuration, section: EntityConfig) -> Iterator[Danger]:
    if isinstance(section, OpenTelemetryConfig | TracingConfig) and section.tls.key_file is not None:
        yield from _file(configuration, section, f"{section.type}: privateKeyFile", section.tls.key_file)


def _vhost(configuration: Configuration, vhost: EntityConfig) -> Iterator[Danger]:
    if not isinstance(vhost, VhostConfig):
        return
    name = f"vhost '{vhost.hostname}'"
    if "/" in vhost.hostname and any(listener.multi_tenant for listener in configuration.listeners):
        text = f"{name}: clients of multiTenant listeners never get this vhost, because its name has a slash"
        yield _danger(configuration, vhost, text, worst=True)
    for group in vhost.groups:
        where = _danger(configuration, vhost, "")
        line = group.lines.get("users") or group.line or vhost.line
        parts = [each for each in group.users if _PART_OF_A_NAME.fullmatch(each)]
        if len(parts) > 1:
            text = f"{name}, group '{group.name}': users are '{parts[0]}', '{parts[1]}' …: if that is the name of one"
            text += ' certificate, write a JSON list: ["CN=alice,O=Client,C=US"]'
            yield where._replace(worst=True, line=line, text=text)
        everywhere = "*" in group.targets and group.target_pattern is None
        if "*" in group.users and "*" in group.remote_hosts and everywhere and group.management in ("operate", "all"):
            text = f"{name}, group '{group.name}': everybody may send to every address, and to $management;"
            text += " set targets, or management: none"
            yield where._replace(line=line, text=text)


def _secret(configuration: Configuration, entity: EntityConfig, what: str, written: str) -> Iterator[Danger]:
    """Check the file of a password, if the password is in a file."""
    if (path := file_of(written)) is not None:
        yield from _file(configuration, entity, what, path)


def _file(configuration: Configuration, entity: EntityConfig, what: str, path: str) -> Iterator[Danger]:
    """Check the mode of a file with secrets. Unreadable files are reported elsewhere."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if mode & OTHERS_WRITE:
        yield _danger(configuration, entity, f"{what}: other users can change {path}; run chmod 600", worst=True)
    elif mode & OTHERS_READ:
        yield _danger(configuration, entity, f"{what}: other users can read {path}; run chmod 600")
