"""Conversion of validated entities to typed objects, with rules beyond the schema (management.md 2.6).

`build_core` converts addresses, exchanges and bindings.
"""

import ipaddress
import os
import re
import secrets
import string
import unicodedata
from typing import Any

from sluice.router.config import allowed_routers
from sluice.router.config.allowed_routers import AllowedRouter
from sluice.router.config.build_auth import split_words
from sluice.router.config.capacity import measure
from sluice.router.config.entities import (
    DEFAULT_LINK_CAPACITY,
    MAX_SESSIONS,
    MIN_FRAME_SIZE,
    ConnectorConfig,
    ConsoleConfig,
    DummyConfig,
    FailoverServer,
    ListenerConfig,
    LogConfig,
    ProxyConfig,
    RouterConfig,
    SslProfileConfig,
)
from sluice.router.config.errors import Problems
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.password import NOT_IN_ENVIRONMENT, fault, is_missing
from sluice.router.config.policy_entities import PolicyConfig
from sluice.router.config.ports import PORTS, port_number
from sluice.router.config.roles import BETWEEN_ROUTERS, CLIENT_ROLES, EDGE, INTER_EDGE, INTER_ROUTER
from sluice.router.config.validate import Entity
from sluice.router.config.web_urls import web_url_fault
from sluice.router.log import DEFAULT, ModuleSettings, TimestampFormatter, parse_enable
from sluice.router.tls.versions import missing_between
from sluice.router.websocket.origins import origin_fault

MAX_ROUTER_ID = 127  # characters; limit of Dispatch, on which other routers rely
GRACE_VARIABLE = "SLUICE_SHUTDOWN_GRACE_SECONDS"  # environment variable: default of shutdownGraceSeconds
MOST_GRACE_SECONDS = 86400  # as in the schema
GENERATED_ID = 15  # random characters of a generated router id
INVALID = "ValidationError"  # kind of errors
MOST_LIST_URLS = 16
_SHOWN = 80  # characters of a host in an error text
MAX_WORKERS = 64  # workers for which the shared memory has room
# Greatest sizes, in octets, of data that a worker gets with each connection, in a message of limited size.
MAX_ENDPOINT_NAME = 1024
MAX_HOST = 255  # RFC 1035
MAX_USER = 400  # a whole SASL frame has at most 512 octets
RESERVED_PROPERTIES = frozenset({"product", "version", "failover-server-list", "network-host", "port"})
RESERVED_PREFIXES = ("qd.", "x-opt-qd.")
# Values of log module DEFAULT. Other modules inherit them, so their attributes have no defaults.
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
    "all", "none", "traceparent",
})  # fmt: skip

# [SCHEME://]HOST[:PORT], with an IPv6 address in brackets.
_FAILOVER = re.compile(r"(?:([^:/]+)://)?(\[[^\]]*\]|[^:/]*)(?::([0-9]+))?")
_ID_CHARACTERS = string.ascii_letters + string.digits + "+_"


def build_router(entity: Entity, problems: Problems) -> RouterConfig:
    """Build the router section."""
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
    capacity = measure()
    workers = entity.optional_number("workerThreads") or capacity.workers
    if workers > MAX_WORKERS:
        if "workerThreads" in entity.values:
            text = f"workerThreads is {workers}: a router has at most {MAX_WORKERS} workers"
            problems.warn("ROUTER", entity.line_of("workerThreads"), text)
        workers = MAX_WORKERS
    megabytes = entity.optional_number("maxBufferedMegabytes") or capacity.megabytes(workers)
    made_up: dict[str, JsonValue] = {
        "area": "0",
        "id": identifier,
        "workerThreads": workers,
        "maxBufferedMegabytes": megabytes,
    }
    return RouterConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values={**entity.values, **made_up},
        generated=frozenset(made_up.keys() - entity.values.keys()),
        id=identifier,
        mode=mode,
        workers=workers,
        buffered_megabytes=megabytes,
        shutdown_grace_seconds=_grace(entity, problems),
        shutdown_connections_per_second=entity.number("shutdownConnectionsPerSecond"),
        hello_interval_seconds=entity.number("helloIntervalSeconds"),
        hello_max_age_seconds=entity.number("helloMaxAgeSeconds"),
        ra_interval_seconds=entity.number("raIntervalSeconds"),
        ra_interval_flux_seconds=entity.number("raIntervalFluxSeconds"),
        remote_ls_max_age_seconds=entity.number("remoteLsMaxAgeSeconds"),
        allow_unsettled_multicast=entity.flag("allowUnsettledMulticast"),
        resumable_routed_links=entity.flag("allowResumableLinkRoute"),
        metrics_users=entity.number("metricsUsers"),
        history_file=entity.optional_text("historyFile"),
        watch_configuration=entity.flag("watchConfiguration"),
        files_by_management=entity.flag("allowFilesByManagement"),
        default_distribution=entity.text("defaultDistribution"),
        metadata=entity.optional_text("metadata"),
        timestamp_format=entity.optional_text("timestampFormat"),
        timestamps_in_utc=entity.flag("timestampsInUTC"),
        sasl_config_dir=entity.optional_text("saslConfigDir") or None,
        sasl_config_name=entity.text("saslConfigName"),
        ready_without_uplink=entity.flag("readyWithoutUplink"),
        all_uplinks=entity.text("uplinks") == "all",
        router_absence_seconds=entity.number("routerAbsenceSeconds"),
    )


def _grace(entity: Entity, problems: Problems) -> int:
    """Return the time limit of a drain in seconds. The unit or image that starts the router may set the default."""
    given = entity.optional_number("shutdownGraceSeconds")
    if given is not None:
        return given
    text = os.environ.get(GRACE_VARIABLE, "0")
    if text.isascii() and text.isdecimal() and int(text) <= MOST_GRACE_SECONDS:
        return int(text)
    problems.error(entity.line, f"{GRACE_VARIABLE}={text} is no number of seconds up to {MOST_GRACE_SECONDS}")
    return 0


def _generated_id(mode: str) -> str:
    return f"{mode.capitalize()}_" + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(GENERATED_ID))


def _check_timestamp_format(entity: Entity, problems: Problems) -> None:
    pattern = entity.optional_text("timestampFormat")
    try:
        TimestampFormatter(pattern, utc=True).stamp(0)
    except ValueError as error:
        problems.error(entity.line_of("timestampFormat"), f"Invalid timestampFormat {pattern!r}: {error}")


def build_ssl_profile(entity: Entity, problems: Problems) -> SslProfileConfig:
    """Build an sslProfile. Its files are not read."""
    name = entity.optional_text("name")
    identity = f"sslProfile/{name}"
    password = _secret(entity, "password", problems)
    file = entity.optional_text("passwordFile")
    if password is None and file is not None:
        password = f"file:{file}"
        text = "Attribute passwordFile of entity sslProfile has been deprecated."
        line = entity.line_of("passwordFile")
        problems.warn("CONN_MGR", line, f"{text} Use password field with the file: prefix instead.")
    if password is not None and problems.files and is_missing(password):
        problems.error(entity.line_of("password"), NOT_IN_ENVIRONMENT)
    protocols = tuple((entity.optional_text("protocols") or "").split())
    if missing := missing_between(protocols):
        text = f"sslProfile '{name or identity}': connectors and authentication services use only TLS versions before"
        text += f" {missing[0]}, because protocols has newer ones without it; add {' '.join(missing)}"
        problems.warn("CONN_MGR", entity.line_of("protocols"), text)
    return SslProfileConfig(
        name=name or identity,
        identity=identity,
        named=bool(name),
        line=entity.line or None,
        values=entity.values,
        certificate_file=entity.optional_text("certFile"),
        key_file=entity.optional_text("privateKeyFile"),
        password=password,
        trusted_file=entity.optional_text("caCertFile"),
        ciphers=entity.optional_text("ciphers"),
        protocols=protocols,
        uid_format=entity.optional_text("uidFormat"),
        uid_mapping_file=entity.optional_text("uidNameMappingFile"),
        user_prefix=entity.text("userPrefix"),
        retires_old=entity.text("oldConnections") == "retire",
        list_urls=_list_urls(entity, problems),
        list_refresh_seconds=entity.number("crlRefreshSeconds"),
        closes_revoked=entity.text("revokedConnections") == "close",
        lines=entity.lines,
    )


def _list_urls(entity: Entity, problems: Problems) -> tuple[str, ...]:
    """Return the URLs of revocation lists in an sslProfile; record invalid ones as errors."""
    urls = split_words(entity.optional_text("crlUrl"))
    fault = next((fault for url in urls if (fault := web_url_fault(url)) is not None), None)
    if len(urls) > MOST_LIST_URLS:
        fault = f"{len(urls)} URLs; at most {MOST_LIST_URLS} are allowed"
    if urls and fault is None and entity.optional_text("caCertFile") is None:
        fault = "caCertFile must be set to the authorities that sign the lists"
    if fault is not None:
        problems.error(entity.line_of("crlUrl"), f"{entity.type.long_name}: crlUrl: {fault}")
    return urls


def build_listener(entity: Entity, problems: Problems) -> ListenerConfig:
    """Build a listener. Its role is checked by `check_role`; its host is resolved when the listener opens.

    brokers-and-edge.md L-1.
    """
    _check_host(entity, problems)
    if "trustedCertsFile" in entity.values:
        text = "Configuration listener attribute 'trustedCertsFile' is not used. Specify sslProfile caCertFile instead."
        problems.warn("CONN_MGR", entity.line_of("trustedCertsFile"), text)
    root = entity.optional_text("httpRootDir") or None
    return ListenerConfig(
        **_endpoint(entity, problems),
        port=port_number(entity.text("port").strip(), entity, problems),
        family=entity.optional_text("socketAddressFamily"),
        initial_handshake_timeout_seconds=entity.number("initialHandshakeTimeoutSeconds"),
        authenticate_peer=entity.flag("authenticatePeer"),
        require_encryption=entity.flag("requireSsl") or entity.flag("requireEncryption"),
        multi_tenant=entity.flag("multiTenant"),
        failover_servers=_failover_servers(entity, problems),
        sasl_plugin=entity.optional_text("saslPlugin") or None,
        sasl_users=entity.optional_text("saslUsers") or None,
        token_issuers=split_words(entity.optional_text("tokenIssuers")),
        http=entity.flag("http") or root is not None,
        healthz=entity.flag("healthz"),
        metrics=entity.flag("metrics"),
        metrics_token=_secret(entity, "metricsToken", problems),
        websockets=entity.flag("websockets"),
        http_root=root,
        proxy_networks=_proxy_networks(entity, problems),
        allowed_origins=_allowed_origins(entity, problems),
    )


def build_connector(entity: Entity, problems: Problems) -> ConnectorConfig:
    """Build a connector. Its role is checked by `check_role`; its host is resolved when the connector connects.

    brokers-and-edge.md C-1.
    """
    _check_length(entity, "saslUsername", MAX_USER, problems)
    return ConnectorConfig(
        **_endpoint(entity, problems),
        family=entity.optional_text("protocolFamily"),
        sasl_username=entity.optional_text("saslUsername") or None,
        sasl_password=_secret(entity, "saslPassword", problems),
        verify_hostname=entity.flag("verifyHostname"),
        websockets=entity.flag("websockets"),
        websocket_path=_websocket_path(entity, problems),
        proxy=_proxy(entity, problems),
        parallel_connections=(entity.number("parallelConnections") if entity.text("role") in (EDGE, INTER_EDGE) else 1),
        ready_without=entity.flag("readyWithout"),
        allow_redirect=entity.flag("allowRedirect"),
    )


def _proxy_networks(entity: Entity, problems: Problems) -> tuple[str, ...]:
    """Return the networks of a listener's proxies."""
    networks = split_words(entity.optional_text("proxyNetworks"))
    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            text = f"proxyNetworks: '{network}' is neither an address nor a network such as 10.0.0.0/8"
            problems.error(entity.line_of("proxyNetworks"), f"{entity.type.long_name}: {text}")
    return networks


def _allowed_origins(entity: Entity, problems: Problems) -> tuple[str, ...]:
    """Return the origins of web pages that may use a listener."""
    origins = split_words(entity.optional_text("allowedOrigins"))
    for origin in origins:
        fault = origin_fault(origin)
        if fault is not None:
            problems.error(entity.line_of("allowedOrigins"), f"{entity.type.long_name}: allowedOrigins: {fault}")
    return tuple(origin.lower() for origin in origins)


def _websocket_path(entity: Entity, problems: Problems) -> str:
    """Return the path that a connector requests from an HTTP server."""
    path = entity.text("websocketPath")
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        text = f"websocketPath '{path[:_SHOWN]}' is invalid: a path must begin with '/' and have no blanks"
        problems.error(entity.line_of("websocketPath"), f"{entity.type.long_name}: {text}")
    return path


def _secret(entity: Entity, attribute: str, problems: Problems) -> str | None:
    """Return a password as written: the password itself, or a reference such as `file:PATH`."""
    written = entity.optional_text(attribute)
    if written is not None and problems.files and (reason := fault(written)) is not None:
        problems.error(entity.line_of(attribute), f"{entity.type.long_name}: {attribute}: {reason}")
    return written


def _proxy(entity: Entity, problems: Problems) -> ProxyConfig | None:
    """Return the proxy of a connector."""
    host = (entity.optional_text("proxyHost") or "").strip()
    user = entity.optional_text("proxyUser") or None
    if user is not None and ":" in user:
        problems.error(entity.line_of("proxyUser"), f"{entity.type.long_name}: proxyUser must not contain ':'")
    for attribute in ("proxyPort", "proxyUser", "proxyPassword"):
        if not host and attribute in entity.lines:
            problems.warn("CONN_MGR", entity.line_of(attribute), f"{attribute} has no effect without proxyHost")
    if not host:
        return None
    return ProxyConfig(host, entity.text("proxyPort").strip(), user, _secret(entity, "proxyPassword", problems))


def _endpoint(entity: Entity, problems: Problems) -> dict[str, Any]:
    """Return the fields that listeners and connectors have in common (brokers-and-edge.md W-14)."""
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
        "ssl_profile": entity.optional_text("sslProfile") or None,
        "sasl_mechanisms": _mechanisms(entity),
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
        "policy_vhost": entity.optional_text("policyVhost") or None,
        "allowed_routers": _allowed_routers(entity, problems),
    }


def _allowed_routers(entity: Entity, problems: Problems) -> tuple[AllowedRouter, ...]:
    """Return the routers that may join through a listener or connector."""
    found: tuple[AllowedRouter, ...] = ()
    fault = None
    try:
        found = allowed_routers.parse(entity.optional_text("allowedRouters") or "")
    except ValueError as error:
        fault = str(error)
    if found and entity.text("role") not in BETWEEN_ROUTERS:
        fault = f"allowed only for the roles {', '.join(BETWEEN_ROUTERS)}"
    if fault is not None:
        problems.error(entity.line_of("allowedRouters"), f"{entity.type.long_name}: allowedRouters: {fault}")
    return found


def _check_length(entity: Entity, attribute: str, most: int, problems: Problems) -> None:
    """Record an error for an attribute of more than `most` octets."""
    octets = len((entity.optional_text(attribute) or "").encode("utf-8", "surrogatepass"))
    if octets > most:
        text = f"attribute '{attribute}' has {octets} octets; at most {most} are allowed"
        problems.error(entity.line_of(attribute), f"{entity.type.long_name}: {text}")


def check_role(listener: Entity, mode: str | None, problems: Problems, kind: str | None = None) -> None:
    """Record an error if a listener or connector has a role for other routers that `mode` does not allow.

    `mode` is None if it is unknown or unsupported. `kind` is the kind of the error.

    brokers-and-edge.md W-10, W-11, ED-1.
    """
    role = listener.text("role")
    connects = listener.type.name == ConnectorConfig.type
    if role in CLIENT_ROLES:
        return
    if mode == "interior" and role != INTER_EDGE and (role == INTER_ROUTER or not connects):
        return
    if mode == "edge" and (role == INTER_EDGE or (role == EDGE and connects)):
        return
    if mode == "standalone":
        text = "role='standalone' not allowed to connect to or accept connections from other routers."
    else:
        # An interior router connects to others with role inter-router. (Dispatch also lets it use role edge.)
        allowed = "edge" if role == INTER_EDGE or (connects and role == EDGE) else "interior"
        what = f"{listener.type.long_name} {_shown(listener)}"
        text = f"role='{role}' only allowed with router mode='{allowed}' for {what}"
    problems.error(listener.line_of("role"), text, kind)


def _shown(entity: Entity) -> str:
    """Return the name of an entity, or host and port, for an error text."""
    return entity.optional_text("name") or f"{entity.text('host')}:{entity.text('port')}"


def _check_host(entity: Entity, problems: Problems) -> None:
    """Record an error for a host that can be neither a name nor an address."""
    host = entity.text("host").strip()
    try:
        host.encode("idna")
        reason = "it contains a NUL" if "\0" in host else None
    except UnicodeError as error:
        reason = str(error.__cause__ or error)
    if reason is not None:
        text = f"host '{host[:_SHOWN]}' is neither a name nor an address: {reason}"
        problems.error(entity.line_of("host"), f"{entity.type.long_name}: {text}")


def _mechanisms(entity: Entity) -> tuple[str, ...] | None:
    """Return the allowed SASL mechanisms without duplicates; None: all. Unknown names are kept."""
    return tuple(dict.fromkeys(split_words((entity.optional_text("saslMechanisms") or "").upper()))) or None


def _message_components(entity: Entity, problems: Problems) -> str:
    """Return the parts of messages to log, as written. Unknown parts cause a warning. brokers-and-edge.md W-15."""
    text = entity.text("messageLoggingComponents")
    unknown = [each for each in text.split(",") if each not in MESSAGE_COMPONENTS]
    if unknown:
        line = entity.line_of("messageLoggingComponents")
        problems.warn("CONN_MGR", line, f"Unknown messageLoggingComponents: {', '.join(map(repr, unknown))}")
    return text


def _failover_servers(entity: Entity, problems: Problems) -> tuple[FailoverServer, ...]:
    """Return the servers in `failoverUrls`, items `[SCHEME://]HOST[:PORT]` separated by commas."""
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
    # brokers-and-edge.md C-30, C-31.
    role = entity.text("role")
    if entity.map("openProperties") and role not in CLIENT_ROLES:
        problems.error(entity.line_of("openProperties"), f"openProperties not allowed for role {role}", INVALID)
    for key in entity.map("openProperties"):
        if key in RESERVED_PROPERTIES or key.startswith(RESERVED_PREFIXES):
            line = entity.line_of("openProperties")
            problems.error(line, f"Reserved key '{key}' not allowed in openProperties", INVALID)


def build_log(entity: Entity, problems: Problems) -> LogConfig:
    """Build the settings of one log module."""
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
        format=entity.optional_text("format"),
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
    """Build the policy section (security.md P-1)."""
    return PolicyConfig(
        name=entity.optional_text("name") or "policy/None",
        identity="policy/None",
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        max_connections=entity.number("maxConnections"),
        max_message_size=entity.number("maxMessageSize"),
        vhosts_enabled=entity.flag("enableVhostPolicy"),
        vhost_patterns=entity.flag("enableVhostNamePatterns"),
        directory=entity.text("policyDir"),
        default_vhost=entity.text("defaultVhost"),
    )


def build_console(entity: Entity, number: int, problems: Problems) -> ConsoleConfig:
    """Build a console section, which only causes Dispatch's warning (management.md 2.8)."""
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
    """Build a dummy entity."""
    identity = f"dummy/{number}"
    return DummyConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
    )
