"""Conversion of validated vhost entities and their groups to typed objects.

Specification: security.md 5.2 to 5.4, management.md 10.1. Error texts are those of Dispatch; each error has the line of
its attribute.
"""

from collections.abc import Callable, Iterable, Mapping

from sluice.router.addressing.pattern import SEPARATORS, canonical
from sluice.router.config.errors import Problems
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.policy_entities import GroupConfig, SharedLimits, VhostConfig
from sluice.router.config.schema import SCHEMA
from sluice.router.config.validate import Entity
from sluice.router.config.values import InvalidValue, to_integer
from sluice.router.policy.hosts import ANY, HostError, Resolve, address_range
from sluice.router.policy.names import item_fault

POLICY_ERROR = "PolicyError"  # kind of errors
DEFAULT_GROUP = "$default"
MOST_CONNECTIONS = 65535
MOST = 2**63 - 1
_SHOWN = 200  # characters of a value in an error text
_COUNTS = frozenset({"maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"})
_LISTS = frozenset({"users", "remoteHosts", "sources", "targets", "sourcePattern", "targetPattern"})
_RULES = {"sources": False, "targets": False, "sourcePattern": True, "targetPattern": True}  # True: patterns
_GROUP = SCHEMA.types["vhostUserGroupSettings"].own_attributes
_TYPES = {bool: "bool", str: "str", int: "int", float: "float", list: "list", dict: "dict", type(None): "NoneType"}


class _VhostReader:
    """Reader of one vhost entity, which records its errors. Owner: `build_vhost`."""

    def __init__(self, entity: Entity, problems: Problems) -> None:
        self.entity = entity
        self.vhost = entity.text("hostname")
        self._problems = problems

    def error(self, reason: str, *keys: str) -> None:
        """Record an error for an attribute, or for the member of a map. `keys` is the attribute and the path to it."""
        text = f"Policy '{self.vhost}' is invalid: {reason}"
        self._problems.error(self.entity.line_of(*keys) or None, text, POLICY_ERROR)

    def warn(self, text: str, *keys: str) -> None:
        """Record a warning for an attribute, or for the member of a map."""
        self._problems.warn("POLICY", self.entity.line_of(*keys), text)

    def number(self, name: str) -> int | None:
        """Return the number in an attribute of the vhost, or None."""
        if name not in self.entity.values:
            return None
        try:
            return _number(name, self.entity.values[name])
        except InvalidValue as error:
            self.error(f"Policy vhost '{self.vhost}' option '{name}' has error '{error}'.", name)
            return None

    def count(self, name: str) -> int:
        """Return the number of connections in an attribute of the vhost."""
        number = self.number(name)
        return MOST_CONNECTIONS if number is None else number

    def aliases(self) -> tuple[str, ...]:
        """Return the aliases."""
        found: list[str] = []
        for alias in _items(self.entity.optional_text("aliases") or ""):
            text = f"Policy vhost '{self.vhost}' option 'aliases' value '{alias}'"
            if alias == self.vhost:
                self.error(f"{text} duplicates vhost name", "aliases")
            elif alias in found:
                self.error(f"{text} is duplicated", "aliases")
            else:
                found.append(alias)
        return tuple(found)

    def groups(self, addresses: dict[str, str], resolve: Resolve | None) -> tuple[GroupConfig, ...]:
        """Return the groups. The resolved host names in them are added to `addresses`."""
        groups = []
        for name, settings in self.entity.map("groups").items():
            if isinstance(settings, dict):
                groups.append(self._group(name, settings, addresses, resolve))
            else:
                kind = _TYPES[type(settings)]
                text = f"Policy vhost '{self.vhost}' user group '{name}' must be of type 'dict' but is '{kind}'"
                self.error(text, "groups", name)
        self._check_users(groups)
        return tuple(groups)

    def _check_users(self, groups: Iterable[GroupConfig]) -> None:
        group_of: dict[str, str] = {}
        for group in groups:
            for user in group.users:
                other = group_of.setdefault(user, group.name)
                if other != group.name:
                    where = f"in multiple user groups '{other}' and '{group.name}'"
                    self.error(f"Policy vhost '{self.vhost}' user '{user}' is {where}", "groups", group.name, "users")

    def _group(
        self, name: str, settings: Mapping[str, JsonValue], addresses: dict[str, str], resolve: Resolve | None
    ) -> GroupConfig:
        values: dict[str, JsonValue] = {}
        lists: dict[str, tuple[str, ...]] = {}
        where = f"Policy vhost '{self.vhost}' user group '{name}'"
        for key, value in settings.items():
            if key not in _GROUP:
                self.warn(f"{where} option '{key}' is ignored.", "groups", name, key)
            elif value is None:
                continue
            elif key in _LISTS:
                lists[key] = self._list(where, name, key, value)
            elif _GROUP[key].type == "boolean":
                word = value.lower() if isinstance(value, str) else value
                if word in ("true", "false"):
                    values[key] = word == "true"
                elif isinstance(value, bool):
                    values[key] = value
                else:
                    text = f"{where} option '{key}' has illegal boolean value '{_shown(value)}'."
                    self.error(text, "groups", name, key)
            else:
                try:
                    values[key] = _GROUP[key].convert(value) if _GROUP[key].type == "enum" else _number(key, value)
                except InvalidValue as error:
                    self.error(f"{where} option '{key}' has error '{error}'.", "groups", name, key)
        for plain, pattern in (("sources", "sourcePattern"), ("targets", "targetPattern")):
            if plain in lists and pattern in lists:
                text = f"specifies conflicting '{plain}' and '{pattern}' attributes. Use only one or the other."
                self.error(f"{where} {text}", "groups", name, pattern)
        self._resolve(where, name, lists.get("remoteHosts", ()), addresses, resolve)
        return self._made(name, values, lists, settings)

    def _list(self, where: str, group: str, key: str, value: JsonValue) -> tuple[str, ...]:
        """Return the items of a list without duplicates, and record invalid ones as errors."""
        items = _items(value, empty=key == "remoteHosts")
        if key in _RULES:
            for item in items:
                if (fault := item_fault(item, _RULES[key])) is not None:
                    self.error(f"{where} policy key '{key}' item '{item}' {fault}", "groups", group, key)
        return items

    def _resolve(
        self, where: str, group: str, hosts: Iterable[str], addresses: dict[str, str], resolve: Resolve | None
    ) -> None:
        """Record errors in remote hosts. Without `resolve`, host names are resolved later."""

        def find(name: str) -> str:
            if resolve is None:
                raise LookupError
            if name not in addresses:
                addresses[name] = resolve(name)
            return addresses[name]

        for host in hosts:
            if host == ANY:
                continue
            try:
                address_range(host, find)
            except HostError as error:
                self.error(host_fault(self.vhost, group, host, error), "groups", group, "remoteHosts")
            except LookupError:
                continue

    def _made(
        self,
        name: str,
        values: Mapping[str, JsonValue],
        lists: Mapping[str, tuple[str, ...]],
        settings: Mapping[str, JsonValue],
    ) -> GroupConfig:
        every: dict[str, JsonValue] = {**{key: each.default for key, each in _GROUP.items()}, **values}

        def number(key: str) -> int | None:
            value = every[key]
            return value if isinstance(value, int) else None

        return GroupConfig(
            name=name,
            users=lists.get("users", ()),
            remote_hosts=lists.get("remoteHosts", ()),
            max_connections_per_user=number("maxConnectionsPerUser"),
            max_connections_per_host=number("maxConnectionsPerHost"),
            max_message_size=number("maxMessageSize"),
            max_frame_size=number("maxFrameSize") or None,
            max_session_window=number("maxSessionWindow") or None,
            max_sessions=number("maxSessions") or None,
            max_senders=number("maxSenders") or 0,
            max_receivers=number("maxReceivers") or 0,
            allow_dynamic_source=bool(every["allowDynamicSource"]),
            allow_anonymous_sender=bool(every["allowAnonymousSender"]),
            allow_user_id_proxy=bool(every["allowUserIdProxy"]),
            allow_waypoint_links=bool(every["allowWaypointLinks"]),
            allow_fallback_links=bool(every["allowFallbackLinks"]),
            allow_dynamic_link_routes=bool(every["allowDynamicLinkRoutes"]),
            allow_admin_status_update=bool(every["allowAdminStatusUpdate"]),
            management=str(every["management"]),
            shared=_shared(number),
            sources=lists.get("sources", ()),
            targets=lists.get("targets", ()),
            source_pattern=lists.get("sourcePattern"),
            target_pattern=lists.get("targetPattern"),
            line=self.entity.line_of("groups", name),
            lines={key: self.entity.line_of("groups", name, key) for key in settings},
        )


def build_vhost(
    entity: Entity, problems: Problems, resolve: Resolve | None = None, file: str | None = None
) -> VhostConfig:
    """Build a vhost. `resolve` looks up host names; None: they are resolved later.

    `file` is its file, if that is not the configuration file.
    """
    reader = _VhostReader(entity, problems)
    addresses: dict[str, str] = {}
    groups = reader.groups(addresses, resolve)
    identity = f"vhost/{reader.vhost}"
    vhost = VhostConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        file=file,
        values=entity.values,
        hostname=reader.vhost,
        aliases=reader.aliases(),
        max_connections=reader.count("maxConnections"),
        max_connections_per_user=reader.count("maxConnectionsPerUser"),
        max_connections_per_host=reader.count("maxConnectionsPerHost"),
        max_message_size=reader.number("maxMessageSize"),
        shared=_shared(reader.number, connections=False),
        allow_unknown_user=entity.flag("allowUnknownUser"),
        close_on_change=entity.text("onChange") == "close",
        groups=groups,
        lines=entity.lines,
        addresses=addresses,
    )
    if vhost.allow_unknown_user and all(group.name != DEFAULT_GROUP for group in groups):
        text = "allows connections by default but default settings are not defined"
        reader.error(f"Policy vhost '{reader.vhost}' {text}", "allowUnknownUser")
    return vhost


class VhostNames:
    """Names, aliases and patterns of vhosts in use. Owner: the code that collects the vhosts."""

    def __init__(self, vhosts: Iterable[VhostConfig] = (), *, patterns: bool) -> None:
        """Add vhosts. `patterns`: their names are patterns."""
        self._patterns = patterns
        self._vhosts: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._canonical: set[str] = set()
        for vhost in vhosts:
            self._enter(vhost)

    def add(self, vhost: VhostConfig) -> str | None:
        """Add the names of a vhost. Return a conflict as text, or None."""
        if vhost.hostname in self._vhosts:
            return None  # duplicate names are reported for all entities elsewhere
        fault = self._fault(vhost)
        if fault is None:
            self._enter(vhost)
        return fault

    def _fault(self, vhost: VhostConfig) -> str | None:
        name = vhost.hostname
        if (other := self._aliases.get(name)) is not None:
            return f"Policy is creating vhost '{name}' but that name is already an alias for vhost '{other}'"
        if self._patterns and _canonical(name) in self._canonical:
            return f"Policy '{name}' optimized pattern conflicts with existing pattern"
        taken = {_canonical(name)}
        for alias in vhost.aliases:
            if alias in self._vhosts:
                conflict = f"which conflicts with an existing vhost named '{alias}'"
                return f"Policy for vhost '{name}' defines alias '{alias}' {conflict}"
            if (other := self._aliases.get(alias)) is not None:
                return f"Policy for vhost '{name}' alias '{alias}' conflicts with existing alias for vhost '{other}'"
            if self._patterns and (_canonical(alias) in self._canonical or _canonical(alias) in taken):
                return f"Policy for vhost '{name}' alias '{alias}' optimized pattern conflicts with existing pattern"
            taken.add(_canonical(alias))
        return None

    def _enter(self, vhost: VhostConfig) -> None:
        self._vhosts[vhost.hostname] = vhost.hostname
        self._canonical.add(_canonical(vhost.hostname))
        for alias in vhost.aliases:
            self._aliases[alias] = vhost.hostname
            self._canonical.add(_canonical(alias))


def host_fault(vhost: str, group: str, host: str, error: HostError) -> str:
    """Return the error text for a remote host of a group."""
    where = f"Policy vhost '{vhost}' user group '{group}' option 'remoteHosts'"
    return f"{where} connectionOption '{host}' failed to translate: '{error}'."


def _canonical(name: str) -> str:
    """Return the canonical form of a pattern; empty for a name without tokens."""
    return "/".join(canonical(name)) if name.strip(SEPARATORS) else ""


def _items(value: JsonValue, *, empty: bool = False) -> tuple[str, ...]:
    """Return the items of a list, or of a text with commas, without duplicates. `empty`: keep empty items."""
    parts = value if isinstance(value, list) else str(value).split(",")
    stripped = (str(part).strip() for part in parts)
    return tuple(dict.fromkeys(part for part in stripped if part or empty))


def _number(name: str, value: JsonValue) -> int:
    """Convert a value to a non-negative number. Raises InvalidValue with Dispatch's text."""
    try:
        number = to_integer(value, None, None)
    except InvalidValue as error:
        raise InvalidValue(f"Value '{_shown(value)}' does not resolve to an integer.") from error
    most = MOST_CONNECTIONS if name in _COUNTS else MOST
    if number < 0:
        raise InvalidValue(f"Value '{number}' is below minimum '0'.")
    if number > most:
        raise InvalidValue(f"Value '{number}' is above maximum '{most}'.")
    return number


def _shared(number: Callable[[str], int | None], *, connections: bool = True) -> SharedLimits:
    """Return the limits that connections share. `number(name)` returns the value of an attribute."""
    return SharedLimits(
        connections=(number("maxConnections") or 0) if connections else 0,
        links=number("maxLinks") or 0,
        addresses=number("maxAddresses") or 0,
        messages_per_second=number("maxMessagesPerSecond") or 0,
        octets_per_second=number("maxOctetsPerSecond") or 0,
        buffered_octets=number("maxBufferedOctets") or 0,
    )


def _shown(value: JsonValue) -> str:
    return str(value)[:_SHOWN]
