"""Search for settings of a valid configuration that cannot work or have no effect, with advice. Nothing is read."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sluice.router.config.entities import (
    AuthServiceConfig,
    AutoLinkConfig,
    Configuration,
    ConnectorConfig,
    LinkRouteConfig,
    ListenerConfig,
    SaslUsersConfig,
    SslProfileConfig,
    TokenIssuerConfig,
)
from sluice.router.config.entity import EntityConfig
from sluice.router.config.grammar import Section
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.config.roles import EDGE, INTER_EDGE, INTER_ROUTER, ROUTE_CONTAINER
from sluice.router.config.validate import similar
from sluice.router.config.variables import ATTRIBUTE

# SASL mechanisms that exist: those of this router, and those of Cyrus SASL.
MECHANISMS: Final = (
    "ANONYMOUS", "PLAIN", "EXTERNAL", "SCRAM-SHA-1", "SCRAM-SHA-224", "SCRAM-SHA-256", "SCRAM-SHA-384",
    "SCRAM-SHA-512", "OAUTHBEARER", "XOAUTH2", "GSSAPI", "GSS-SPNEGO", "GS2-KRB5", "GS2-IAKERB", "DIGEST-MD5",
    "CRAM-MD5", "NTLM", "LOGIN", "OTP", "SRP", "PASSDSS-3DES-1",
)  # fmt: skip
_WITH_PASSWORD: Final = ("PLAIN", "SCRAM-")
_WITH_TOKEN: Final = ("OAUTHBEARER", "XOAUTH2")
_HTTP_ONLY: Final = ("healthz", "metrics", "metricsToken", "websockets", "allowedOrigins")
_DEFAULT_GROUP: Final = "$default"
_CONNECTOR_GROUP: Final = "$connector"
_EVERYBODY: Final = "*"
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_PATTERNS: Final = ("prefix", "pattern")
_SECRETS: Final = ("password", "saslPassword", "metricsToken")
_RABBITMQ_QUEUE: Final = "/amq/queue/"
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class LintFinding(NamedTuple):
    """Setting that cannot work. `line` is None for an entity that is in no file."""

    path: str
    line: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.path}:{self.line})" if self.line else self.text


class _Lint:
    """Search in one configuration. `sections` are those of its file, for the lines of attributes."""

    def __init__(self, configuration: Configuration, sections: Iterable[Section]) -> None:
        self.configuration = configuration
        self._lines: dict[int, Mapping[str, int]] = {
            section.line: {name: item.line for name, item in section.attributes.items()} for section in sections
        }

    def given(self, entity: EntityConfig) -> Mapping[str, int]:
        """Return the attributes written in the section of an entity of the file itself, with their lines."""
        return {} if entity.file is not None or entity.line is None else self._lines.get(entity.line, {})

    def at(self, entity: EntityConfig, text: str, attribute: str = "") -> LintFinding:
        """Return a finding at an attribute of an entity, or at its section."""
        line = entity.line
        if attribute:
            lines = self.given(entity)
            definition = entity.entity_type.attributes[attribute]
            names = (attribute, definition.old_name, definition.alias)
            line = next((lines[name] for name in names if name is not None and name in lines), line)
        return LintFinding(entity.file or self.configuration.path, line, text)


def lint(configuration: Configuration, sections: Sequence[Section] = ()) -> list[LintFinding]:
    """Return all findings in the order of lines."""
    search = _Lint(configuration, sections)
    found = [finding for look in _LOOKS for finding in look(search)]
    return sorted(found, key=lambda finding: (finding.path != configuration.path, finding.path, finding.line or 0))


def _endpoints(search: _Lint) -> tuple[ListenerConfig | ConnectorConfig, ...]:
    return (*search.configuration.listeners, *search.configuration.connectors)


def _title(entity: EntityConfig) -> str:
    return f"{entity.entity_type.dump_key} '{entity.name}'"


def _mechanisms(search: _Lint) -> Iterator[LintFinding]:
    """Find unknown SASL mechanisms, and mechanisms without what they need."""
    for endpoint in _endpoints(search):
        listed = endpoint.sasl_mechanisms or ()
        title = _title(endpoint)
        for name in listed:
            if name not in MECHANISMS:
                text = f"{title}: unknown SASL mechanism '{name}'{similar(name, MECHANISMS)}"
                yield search.at(endpoint, text, "saslMechanisms")
        if "EXTERNAL" in listed and endpoint.ssl_profile is None:
            yield search.at(endpoint, f"{title}: EXTERNAL needs an sslProfile", "saslMechanisms")
        if isinstance(endpoint, ListenerConfig) and listed:
            if endpoint.sasl_users is not None and not any(name.startswith(_WITH_PASSWORD) for name in listed):
                text = f"{title}: saslUsers is never used, because saslMechanisms has neither PLAIN nor SCRAM-SHA-…"
                yield search.at(endpoint, text, "saslUsers")
            if endpoint.token_issuers and not any(name in _WITH_TOKEN for name in listed):
                text = f"{title}: tokenIssuers is never used, because saslMechanisms has no OAUTHBEARER or XOAUTH2"
                yield search.at(endpoint, text, "tokenIssuers")
        if isinstance(endpoint, ConnectorConfig) and endpoint.sasl_username and endpoint.sasl_password is None:
            yield search.at(endpoint, f"{title}: saslUsername without saslPassword", "saslUsername")


def _listeners(search: _Lint) -> Iterator[LintFinding]:
    """Find listeners that cannot open or admit nobody, and attributes without effect."""
    places: dict[tuple[str, int], ListenerConfig] = {}
    for listener in search.configuration.listeners:
        title = _title(listener)
        if listener.require_encryption and listener.ssl_profile is None:
            given = search.given(listener)
            attribute = "requireSsl" if "requireSsl" in given else "requireEncryption"
            text = f"{title}: nobody can connect, because {attribute} needs an sslProfile"
            yield search.at(listener, text, attribute)
        unused = [name for name in search.given(listener) if name in _HTTP_ONLY]
        if unused and not listener.http:
            text = f"{title}: {', '.join(unused)} has no effect without http: yes"
            yield search.at(listener, text, unused[0])
        host = "" if listener.host in _EVERYWHERE else listener.host
        other = places.setdefault((host, listener.port), listener)
        if other is not listener and listener.port and listener.family == other.family and listener.host == other.host:
            text = f"{title}: its port is that of {_title(other)}, so one of them cannot open"
            yield search.at(listener, text, "port")


def _containers(search: _Lint) -> Iterator[LintFinding]:
    """Find auto links and link routes whose broker cannot exist."""
    endpoints = _endpoints(search)
    named = {endpoint.name: endpoint for endpoint in endpoints if endpoint.named}
    brokers = [endpoint.name for endpoint in named.values() if endpoint.role == ROUTE_CONTAINER]
    routes: tuple[AutoLinkConfig | LinkRouteConfig, ...]
    routes = (*search.configuration.auto_links, *search.configuration.link_routes)
    for route in routes:
        title = f"{route.entity_type.dump_key} '{_subject(route)}'"
        if route.connection is not None and route.connection not in named:
            text = f"{title}: no connector or listener has the name '{route.connection}'"
            yield search.at(route, text + similar(route.connection, brokers or list(named)), "connection")
        elif route.connection is not None and named[route.connection].role != ROUTE_CONTAINER:
            endpoint = named[route.connection]
            text = f"{title}: {_title(endpoint)} has role: {endpoint.role}; it needs role: {ROUTE_CONTAINER}"
            yield search.at(route, text, "connection")
        elif route.container_id is not None and all(each.role != ROUTE_CONTAINER for each in endpoints):
            text = f"{title}: no broker can connect, because no connector or listener has role: {ROUTE_CONTAINER}"
            yield search.at(route, text, "containerId")
        elif route.connection is None and route.container_id is None:
            yield search.at(route, f"{title}: it has no effect without connection or containerId")


def _unwatched_queues(search: _Lint) -> Iterator[LintFinding]:
    """Find auto links that send to a queue of RabbitMQ without one that would notice that the queue is missing."""
    auto_links = search.configuration.auto_links
    received = {
        (link.connection, link.container_id, link.external_address) for link in auto_links if link.direction == "in"
    }
    for link in auto_links:
        address = link.external_address or ""
        if address.startswith(_RABBITMQ_QUEUE) and (link.connection, link.container_id, address) not in received:
            text = (
                f"{link.entity_type.dump_key} '{_subject(link)}': RabbitMQ discards its messages"
                f" while the queue is missing; with an auto link in from {address}, the router would not send them"
            )
            yield search.at(link, text, "externalAddress")


def _subject(route: AutoLinkConfig | LinkRouteConfig) -> str:
    if route.named:
        return route.name
    return route.address if isinstance(route, AutoLinkConfig) else route.prefix or route.pattern or ""


def _exchanges(search: _Lint) -> Iterator[LintFinding]:
    """Find exchanges that forward nothing."""
    bound = {binding.exchange_name for binding in search.configuration.bindings}
    for exchange in search.configuration.exchanges:
        if exchange.name not in bound and exchange.alternate_address is None:
            text = f"{_title(exchange)}: it forwards no message, because no binding names it"
            yield search.at(exchange, text)


def _unused(search: _Lint) -> Iterator[LintFinding]:
    """Find entities that exist to be named by others, and are not."""
    endpoints = _endpoints(search)
    services = [each for each in search.configuration.others if isinstance(each, AuthServiceConfig)]
    listeners = search.configuration.listeners
    used: dict[type[EntityConfig], set[str | None]] = {
        SslProfileConfig: {each.ssl_profile for each in (*endpoints, *services)},
        SaslUsersConfig: {each.sasl_users for each in listeners},
        TokenIssuerConfig: {name for each in listeners for name in each.token_issuers},
        AuthServiceConfig: {each.sasl_plugin for each in listeners},
    }
    for entity in (*search.configuration.ssl_profiles, *search.configuration.others):
        if type(entity) in used and entity.name not in used[type(entity)]:
            who = "no listener or connector" if isinstance(entity, SslProfileConfig) else "no listener"
            yield search.at(entity, f"{_title(entity)} is not used: {who} names it")


def _values(search: _Lint) -> Iterator[LintFinding]:
    """Find quotes and wildcards that the router takes literally."""
    for entity in search.configuration.entities():
        for name, value in entity.values.items():
            definition = entity.entity_type.attributes.get(name)
            if not isinstance(value, str) or definition is None or len(value) < 2:
                continue
            if value[0] == value[-1] == "'" and name not in _SECRETS:
                text = f"{_title(entity)}: the quotes in {name}: {value} are part of the value; leave them out"
                yield search.at(entity, text, name)
            elif name in _PATTERNS and (token := _literal_wildcard(value)) is not None:
                text = f"{_title(entity)}: '{token}' in {name}: {value} is no wildcard, because * and # stand for whole"
                yield search.at(entity, f"{text} tokens between . or /", name)


def _literal_wildcard(pattern: str) -> str | None:
    """Return the first token that contains a wildcard among other characters, or None."""
    tokens = re.split(r"[./]", pattern)
    return next((token for token in tokens if len(token) > 1 and ("*" in token or "#" in token)), None)


def _vhosts(search: _Lint) -> Iterator[LintFinding]:
    """Find references to vhosts that do not exist, and vhosts that are not enforced."""
    configuration, policy = search.configuration, search.configuration.policy
    vhosts = configuration.vhosts
    if not policy.vhosts_enabled:
        if vhosts:
            text = f"{_title_of(vhosts[0])} has no effect: vhosts are enforced only with enableVhostPolicy: yes"
            yield search.at(vhosts[0], text + " in section policy")
        return
    names = [name for vhost in vhosts for name in (vhost.hostname, *vhost.aliases)]
    given = "defaultVhost" in search.given(policy)
    if policy.default_vhost and policy.default_vhost not in names and (given or not vhosts):
        text = f"policy: there is no vhost '{policy.default_vhost}'{similar(policy.default_vhost, names)}"
        text += ": clients that name no other vhost cannot connect"
        yield search.at(policy, text, "defaultVhost")
    for endpoint in _endpoints(search):
        wanted = endpoint.policy_vhost
        if wanted is not None and wanted not in names and not policy.vhost_patterns:
            text = f"{_title(endpoint)}: there is no vhost '{wanted}'{similar(wanted, names)}"
            yield search.at(endpoint, text, "policyVhost")
    for vhost in vhosts:
        yield from _groups(search, vhost)


def _title_of(vhost: VhostConfig) -> str:
    return f"vhost '{vhost.hostname}'"


def _groups(search: _Lint, vhost: VhostConfig) -> Iterator[LintFinding]:
    """Find groups of a vhost that no client can be in."""
    path = vhost.file or search.configuration.path
    tokens = any(listener.token_issuers for listener in search.configuration.listeners)
    everybody = next((group.name for group in vhost.groups if _EVERYBODY in group.users), None)
    for group in vhost.groups:
        reason, key = "", ""
        if group.name == _DEFAULT_GROUP and everybody not in (None, _DEFAULT_GROUP):
            reason = f"group '{everybody}' has all users (users: {_EVERYBODY})"
        elif group.name == _DEFAULT_GROUP and not group.users and not vhost.allow_unknown_user:
            reason = "it needs allowUnknownUser: yes in the vhost"
        elif not group.users and not tokens and group.name not in (_DEFAULT_GROUP, _CONNECTOR_GROUP):
            reason = "it has no users"
        elif not group.remote_hosts and group.name != _CONNECTOR_GROUP:
            reason, key = "it has no remoteHosts", "remoteHosts"
        if reason:
            line = group.lines.get(key) or group.line or vhost.line
            text = f"{_title_of(vhost)}: nobody can be in group '{group.name}': {reason}"
            yield LintFinding(path, line, text)


def _neighbours(search: _Lint) -> Iterator[LintFinding]:
    """Find routers that can reach nobody."""
    configuration, router = search.configuration, search.configuration.router
    endpoints = _endpoints(search)
    if not endpoints:
        yield search.at(router, "there is neither a listener nor a connector: nobody can connect")
    elif router.mode == "interior" and all(endpoint.role != INTER_ROUTER for endpoint in endpoints):
        text = f"router: no listener or connector has role: {INTER_ROUTER}, so this interior router stays alone"
        yield search.at(router, text, "mode")
    elif router.mode == "edge" and all(each.role not in (EDGE, INTER_EDGE) for each in configuration.connectors):
        text = f"router: no connector has role: {EDGE}, so this edge router stays alone"
        yield search.at(router, text, "mode")


def _variables(search: _Lint) -> Iterator[LintFinding]:
    """Find values with `${NAME}`, which the router does not replace."""
    if search.configuration.router.values.get(ATTRIBUTE):
        return  # texts that look like variables were escaped
    for entity in search.configuration.entities():
        if entity.line is None:
            continue
        for name, value in entity.values.items():
            found = _VARIABLE.search(value) if isinstance(value, str) else None
            if found is not None and name in entity.entity_type.attributes:
                text = f"{entity.entity_type.dump_key}: {name} contains '{found.group()}', which is not replaced"
                text += f"; set {ATTRIBUTE}: yes in section router"
                yield search.at(entity, text, name)


_LOOKS: Final[tuple[Callable[[_Lint], Iterator[LintFinding]], ...]] = (
    _mechanisms, _listeners, _containers, _unwatched_queues, _exchanges, _unused, _values, _vhosts, _neighbours,
    _variables,
)  # fmt: skip
