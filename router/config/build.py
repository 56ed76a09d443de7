"""Validated entities to typed objects, with the rules that the schema cannot express (management specification 2.6).

Address, exchange and binding are the matter of `build_core`.
"""

import os
import re
import secrets
import socket
import string
import unicodedata
from collections.abc import Sequence
from typing import Any

from router.config.entities import (
    DEFAULT_LINK_CAPACITY,
    MAX_SESSIONS,
    MIN_FRAME_SIZE,
    ConnectorConfig,
    ConsoleConfig,
    DummyConfig,
    FailoverServer,
    ListenerConfig,
    LogConfig,
    PolicyConfig,
    RouterConfig,
)
from router.config.errors import Problems
from router.config.jsontext import JsonValue
from router.config.validate import Entity
from router.log import DEFAULT, Clock, ModuleSettings, parse_enable

MAX_ROUTER_ID = 127  # characters; Dispatch's limit, which other routers rely on
GENERATED_ID = 15  # random characters of a generated router id
CLIENT_ROLES = ("normal", "route-container")  # listeners that work without a network of routers
INTERIOR_ROLES = (*CLIENT_ROLES, "inter-router")
PORTS = {"amqp": 5672, "amqps": 5671}  # IANA; known even where /etc/services is missing
MAX_PORT = 65535
INVALID = "ValidationError"  # kind of errors
_SHOWN = 80  # characters of a host in a text
MAX_WORKERS = 64  # workers that the shared memory has room for
# Octets of what goes to a worker with each connection, in a message of limited size; nobody needs as much.
MAX_ENDPOINT_NAME = 1024
MAX_HOST = 255  # of a name: RFC 1035
MAX_USER = 400  # with all that goes along, a SASL frame has at most 512
MECHANISMS = ("ANONYMOUS",)  # SASL mechanisms that listeners have in this version
CONNECTOR_MECHANISMS = ("PLAIN", "ANONYMOUS")  # … and connectors, the better one first
RESERVED_PROPERTIES = frozenset({"product", "version", "failover-server-list", "network-host", "port"})
RESERVED_PREFIXES = ("qd.", "x-opt-qd.")
# Values of log module DEFAULT; the attributes of the other modules are absent and follow these.
LOG_DEFAULTS: dict[str, JsonValue] = {
    "enable": "info+",
    "includeTimestamp": True,
    "includeSource": False,
    "outputFile": "stderr",
}

# Parts of a message that log module MESSAGE can write.
MESSAGE_COMPONENTS = frozenset({
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id", "app-properties",
    "all", "none",
})  # fmt: skip

# [SCHEME://]HOST[:PORT]; an IPv6 address stands in brackets.
_FAILOVER = re.compile(r"(?:([^:/]+)://)?(\[[^\]]*\]|[^:/]*)(?::([0-9]+))?")
_ID_CHARACTERS = string.ascii_letters + string.digits + "+_"


def build_router(entity: Entity, problems: Problems) -> RouterConfig:
    """Return the router of a file."""
    line = entity.line_of("id")
    mode = entity.text("mode")
    identifier = entity.optional_text("id") or _generated_id(mode)
    if len(identifier) > MAX_ROUTER_ID:
        text = f'Router ID "{identifier}" exceeds the maximum allowed length ({MAX_ROUTER_ID} characters)'
        problems.error(line, text)
    bad = next((each for each in identifier if unicodedata.category(each)[0] in "CZ"), None)
    if bad is not None:
        text = f"Router id attribute containing character {bad!a} in id {identifier!a} is disallowed."
        problems.error(line, text, "AttributeError")
    _check_timestamp_format(entity, problems)
    identity = f"router/{identifier}"
    workers = entity.optional_number("workerThreads") or min(len(os.sched_getaffinity(0)), MAX_WORKERS)
    return RouterConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values={**entity.values, "area": "0", "id": identifier, "workerThreads": workers},
        generated=frozenset({"area", "id", "workerThreads"} - entity.values.keys()),
        id=identifier,
        mode=mode,
        workers=workers,
        buffered_megabytes=entity.number("maxBufferedMegabytes"),
        hello_interval_seconds=entity.number("helloIntervalSeconds"),
        hello_max_age_seconds=entity.number("helloMaxAgeSeconds"),
        ra_interval_seconds=entity.number("raIntervalSeconds"),
        ra_interval_flux_seconds=entity.number("raIntervalFluxSeconds"),
        remote_ls_max_age_seconds=entity.number("remoteLsMaxAgeSeconds"),
        allow_unsettled_multicast=entity.flag("allowUnsettledMulticast"),
        resumable_routed_links=entity.flag("allowResumableLinkRoute"),
        default_distribution=entity.text("defaultDistribution"),
        metadata=entity.optional_text("metadata"),
        timestamp_format=entity.optional_text("timestampFormat"),
        timestamps_in_utc=entity.flag("timestampsInUTC"),
    )


def _generated_id(mode: str) -> str:
    return f"{mode.capitalize()}_" + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(GENERATED_ID))


def _check_timestamp_format(entity: Entity, problems: Problems) -> None:
    pattern = entity.optional_text("timestampFormat")
    try:
        Clock(pattern, utc=True).stamp(0)
    except ValueError as error:
        problems.error(entity.line_of("timestampFormat"), f"Invalid timestampFormat {pattern!r}: {error}")


def build_listener(entity: Entity, problems: Problems) -> ListenerConfig:
    """Return one listener. Its role is judged by `check_role`, whether its host exists when it is opened."""
    _check_host(entity, problems)
    return ListenerConfig(
        **_endpoint(entity, MECHANISMS, problems),
        port=_port(entity.text("port").strip(), entity, problems),
        family=entity.optional_text("socketAddressFamily"),
        initial_handshake_timeout_seconds=entity.number("initialHandshakeTimeoutSeconds"),
        multi_tenant=entity.flag("multiTenant"),
        failover_servers=_failover_servers(entity, problems),
        http=entity.flag("http"),
        healthz=entity.flag("healthz"),
        metrics=entity.flag("metrics"),
    )


def build_connector(entity: Entity, problems: Problems) -> ConnectorConfig:
    """Return one connector. Its role is judged by `check_role`; whether its host and port exist shows at run time."""
    _check_length(entity, "saslUsername", MAX_USER, problems)
    return ConnectorConfig(
        **_endpoint(entity, CONNECTOR_MECHANISMS, problems),
        family=entity.optional_text("protocolFamily"),
        sasl_username=entity.optional_text("saslUsername") or None,
        sasl_password=entity.optional_text("saslPassword"),
    )


def _endpoint(entity: Entity, mechanisms: Sequence[str], problems: Problems) -> dict[str, Any]:
    """Return what listeners and connectors have in common; `mechanisms`: of SASL, those that are built."""
    host, port = entity.text("host").strip(), entity.text("port").strip()
    name = entity.optional_text("name")
    identity = f"{entity.type.name}/{host}:{port}" + (f":{name}" if name else "")
    for attribute, most in (("name", MAX_ENDPOINT_NAME), ("host", MAX_HOST), ("port", MAX_HOST)):
        _check_length(entity, attribute, most, problems)
    _check_open_properties(entity, problems)
    strip = entity.text("stripAnnotations")
    max_sessions = entity.number("maxSessions")
    return {
        "name": name or identity,
        "identity": identity,
        "named": bool(name),
        "line": entity.line or None,
        "values": entity.values,
        "host": host,
        "port_text": port,
        "role": entity.text("role"),
        "cost": entity.number("cost"),
        "sasl_mechanisms": _mechanisms(entity, mechanisms, problems),
        "max_frame_size": max(entity.number("maxFrameSize"), MIN_FRAME_SIZE),
        "max_sessions": max_sessions if 0 < max_sessions <= MAX_SESSIONS else MAX_SESSIONS,
        "max_session_frames": entity.optional_number("maxSessionFrames") or None,
        "idle_timeout_seconds": entity.number("idleTimeoutSeconds"),
        "strip_annotations_in": strip in ("in", "both"),
        "strip_annotations_out": strip in ("out", "both"),
        "link_capacity": entity.optional_number("linkCapacity") or DEFAULT_LINK_CAPACITY,
        "buffered_megabytes": entity.number("maxBufferedMegabytes"),
        "open_properties": entity.map("openProperties"),
        "message_components": _message_components(entity, problems),
    }


def _check_length(entity: Entity, attribute: str, most: int, problems: Problems) -> None:
    """Refuse a text that is too long."""
    octets = len((entity.optional_text(attribute) or "").encode("utf-8", "surrogatepass"))
    if octets > most:
        text = f"attribute '{attribute}' has {octets} octets, and at most {most} are allowed"
        problems.error(entity.line_of(attribute), f"{entity.type.long_name}: {text}")


def check_role(listener: Entity, mode: str | None, problems: Problems, kind: str | None = None) -> None:
    """Refuse a listener or connector for other routers in a router of `mode`; None: one not built, or not known.

    kind: of the error.
    """
    role = listener.text("role")
    if role in (INTERIOR_ROLES if mode == "interior" else CLIENT_ROLES):
        return
    if mode == "standalone":
        text = "role='standalone' not allowed to connect to or accept connections from other routers."
    else:
        text = f"{listener.type.long_name}: value '{role}' of attribute 'role' is not supported yet"
    problems.error(listener.line_of("role"), text, kind)


def _port(text: str, entity: Entity, problems: Problems) -> int:
    """Return the number of a port given as number or service name; 0 after an error."""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT)) and int(text) <= MAX_PORT:
        return int(text)
    if text in PORTS:
        return PORTS[text]
    try:
        return socket.getservbyname(text, "tcp")
    except (OSError, ValueError):  # ValueError: a NUL in the name
        line = entity.line_of("port")
        problems.error(line, f"{entity.type.long_name}: port '{text}' is neither 0 to {MAX_PORT} nor a known service")
        return 0


def _check_host(entity: Entity, problems: Problems) -> None:
    """Refuse what can be neither a name nor an address: nobody can be asked for it."""
    host = entity.text("host").strip()
    try:
        host.encode("idna")
        reason = "it has a NUL" if "\0" in host else None
    except UnicodeError as error:
        reason = str(error.__cause__ or error)
    if reason is not None:
        text = f"host '{host[:_SHOWN]}' can be no name and no address: {reason}"
        problems.error(entity.line_of("host"), f"{entity.type.long_name}: {text}")


def _mechanisms(entity: Entity, built: Sequence[str], problems: Problems) -> tuple[str, ...]:
    """Return the SASL mechanisms to offer, or to use: those asked for, as far as they are `built`."""
    text = entity.optional_text("saslMechanisms")
    if text is None:
        return tuple(built)
    line = entity.line_of("saslMechanisms")
    asked = text.replace(",", " ").split()
    found = tuple(each for each in built if each in asked)
    if not found:
        needed = " or ".join(built)
        text = f"value '{text}' of attribute 'saslMechanisms' is not supported yet (it must include {needed})"
        problems.error(line, f"{entity.type.long_name}: {text}")
    elif missing := [each for each in asked if each not in built]:
        what = "offered" if entity.type.name == ListenerConfig.type else "used"
        problems.warn("AUTHSERVICE", line, f"SASL mechanisms not supported yet, not {what}: {' '.join(missing)}")
    return found


def _message_components(entity: Entity, problems: Problems) -> str:
    """Return the parts of messages to log, as given; parts that do not exist are told."""
    text = entity.text("messageLoggingComponents")
    unknown = [each for each in text.split(",") if each not in MESSAGE_COMPONENTS]
    if unknown:
        line = entity.line_of("messageLoggingComponents")
        problems.warn("CONN_MGR", line, f"Unknown messageLoggingComponents: {', '.join(map(repr, unknown))}")
    return text


def _failover_servers(entity: Entity, problems: Problems) -> tuple[FailoverServer, ...]:
    """Return the servers of `failoverUrls`: items `[SCHEME://]HOST[:PORT]` separated by commas."""
    text = entity.optional_text("failoverUrls")
    if text is None:
        return ()
    servers = []
    for item in text.split(","):
        match = _FAILOVER.fullmatch(item.strip())
        host = match.group(2).strip("[]") if match else ""
        if match is None or not host:
            text = f"No network host in failover item '{item.strip()}'"
            problems.error(entity.line_of("failoverUrls"), f"{entity.type.long_name}: {text}")
            continue
        servers.append(FailoverServer(match.group(1), host, match.group(3) or str(PORTS["amqp"])))
    return tuple(servers)


def _check_open_properties(entity: Entity, problems: Problems) -> None:
    role = entity.text("role")
    if entity.map("openProperties") and role not in CLIENT_ROLES:
        problems.error(entity.line_of("openProperties"), f"openProperties not allowed for role {role}", INVALID)
    for key in entity.map("openProperties"):
        if key in RESERVED_PROPERTIES or key.startswith(RESERVED_PREFIXES):
            line = entity.line_of("openProperties")
            problems.error(line, f"Reserved key '{key}' not allowed in openProperties", INVALID)


def build_log(entity: Entity, problems: Problems) -> LogConfig:
    """Return the settings of one log module."""
    module = entity.text("module")
    identity = f"log/{module}"
    mask = None
    enable = entity.optional_text("enable")
    if enable is not None:
        try:
            mask = parse_enable(enable)
        except ValueError as error:
            problems.error(entity.line_of("enable"), str(error), "CError: Configuration")
    settings = ModuleSettings(
        mask=mask,
        timestamp=entity.flag("includeTimestamp") if "includeTimestamp" in entity.values else None,
        source=entity.flag("includeSource") if "includeSource" in entity.values else None,
        output=entity.optional_text("outputFile"),
    )
    return LogConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values if module != DEFAULT else {**LOG_DEFAULTS, **entity.values},
        module=module,
        settings=settings,
    )


def build_policy(entity: Entity) -> PolicyConfig:
    """Return the policy of a file."""
    return PolicyConfig(
        name=entity.optional_text("name") or "policy/None",
        identity="policy/None",
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        max_connections=entity.number("maxConnections"),
    )


def build_console(entity: Entity, number: int, problems: Problems) -> ConsoleConfig:
    """Return a console, of which nothing comes but the warning that Dispatch gives."""
    problems.warn("AGENT", entity.line, "Console entity is deprecated: Use http:yes on listener entity instead")
    identity = f"console/{number}"
    return ConsoleConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
    )


def build_dummy(entity: Entity, number: int) -> DummyConfig:
    """Return a dummy."""
    identity = f"dummy/{number}"
    return DummyConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
    )
