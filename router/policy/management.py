"""Management roles: requests that a client may send to the management agents of a network.

The router to which the client is connected decides. A request to another router carries the decision in its address:
router B serves `_topo/0/B/$management/read` with the rights of role `read`, whatever its own rules are. A router that
does not know such addresses (Dispatch) has no consumer for them.
"""

from typing import Final, NamedTuple

from sluice.router.addressing.address import EVERY, LOCAL, OWN_AREA, key, normalise

MANAGEMENT: Final = "$management"
#: Address of Dispatch's agent for the types outside its core. Sluice has no such agent.
INTERNAL: Final = "$_management_internal"

NONE: Final = "none"
LINK_ROUTES: Final = "link-routes"  # role of an edge router with `none`: it may only create its own link routes
READ: Final = "read"
OPERATE: Final = "operate"
ALL: Final = "all"
#: Roles of groups. Each includes the rights of the roles before it.
ROLES: Final = (NONE, READ, OPERATE, ALL)
_ORDER: Final = (NONE, LINK_ROUTES, READ, OPERATE, ALL)
_KEPT: Final = "-keep-connections"


class ManagementRights(NamedTuple):
    """Management rights of a client.

    `closes`: requests may close connections (`allowAdminStatusUpdate`), provided that the role allows it.
    """

    role: str = ALL
    closes: bool = True

    @property
    def unlimited(self) -> bool:
        """Whether all requests are allowed."""
        return self.role == ALL and self.closes

    def includes(self, role: str) -> bool:
        """Return whether these rights include those of a role."""
        return _ORDER.index(self.role) >= _ORDER.index(role)

    def limited(self, other: "ManagementRights") -> "ManagementRights":
        """Return the rights that are in both."""
        role = self.role if other.includes(self.role) else other.role
        return ManagementRights(role, self.closes and other.closes)

    @property
    def name(self) -> str:
        """Last segment of the address of requests with these rights."""
        return self.role + ("" if self.closes or self.role not in (OPERATE, ALL) else _KEPT)


UNLIMITED: Final = ManagementRights()
#: Rights that an address may carry, by name.
CARRIED_RIGHTS: Final = {
    each.name: each
    for each in (
        ManagementRights(READ, closes=False),
        ManagementRights(OPERATE),
        ManagementRights(OPERATE, closes=False),
        ManagementRights(ALL, closes=False),
    )
}
#: Rights by the key of the local address for requests that carry them. Management does not list these addresses.
SERVED_KEYS: Final = {key(LOCAL, f"{MANAGEMENT}/{name}"): rights for name, rights in CARRIED_RIGHTS.items()}


def rights_by_name(name: str | None) -> ManagementRights:
    """Return the rights with a name; None stands for all rights."""
    if name is None:
        return UNLIMITED
    return CARRIED_RIGHTS.get(name) or ManagementRights(name, closes=False)


def _split(text: str) -> tuple[str, str]:
    """Divide a normalised address into the prefix that names a router (may be empty) and the name at that router."""
    places = {"_local": 1, "_edge": 2, "_topo": 3}.get(text.partition("/")[0], 0)
    parts = text.split("/", places)
    return ("", text) if len(parts) <= places else ("/".join(parts[:places]), parts[places])


def _node(name: str) -> str | None:
    """Return the management node that a name addresses, or None."""
    node = name.partition("/")[0]
    return node if node in (MANAGEMENT, INTERNAL) else None


def is_of_another_router(text: str, router_id: str) -> bool:
    """Return whether an address, as a client writes it, names the management agent of another router."""
    place, name = _split(normalise(text))
    return _node(name) is not None and _is_elsewhere(place, router_id)


def _is_elsewhere(place: str, router_id: str) -> bool:
    own = (f"_edge/{router_id}", f"_topo/{OWN_AREA}/{router_id}", f"_topo/{EVERY}/{router_id}")
    return place not in ("", "_local", *own)


def forbids_management(rights: ManagementRights, text: str) -> bool:
    """Return whether an address names a management agent that a client with these rights may not use at all.

    text: the address as the client writes it.
    """
    place, name = _split(normalise(text))
    return _node(name) is not None and (rights.role == NONE or (rights.role == LINK_ROUTES and place != ""))


def address_for(text: str, rights: ManagementRights, router_id: str) -> str | None:
    """Return the address that replaces `text` in messages of a client with these rights; None if it is forbidden.

    Only addresses of other routers' agents change. The agent of this router checks each request itself.
    """
    place, name = _split(normalise(text))
    node = _node(name)
    if node is None or rights.unlimited:
        return text
    if forbids_management(rights, text):
        return None
    if not _is_elsewhere(place, router_id):
        return text
    carried = CARRIED_RIGHTS.get(name[len(node) + 1 :], UNLIMITED)
    return f"{place}/{node}/{rights.limited(carried).name}"
