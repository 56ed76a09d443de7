"""Management roles: the requests that a client may make of the management agents of a network.

The router that the client is connected to decides. A request for another router carries the decision in its address:
`_topo/0/B/$management/read` is served by router B with the rights of role `read`, whatever B's own rules say. A router
that does not know such addresses (Dispatch) serves nobody there.
"""

from typing import Final, NamedTuple

from router.addressing.address import EVERY, LOCAL, OWN_AREA, key, normalise

MANAGEMENT: Final = "$management"
#: Address of Dispatch's own agent for the types that are not of its core; Sluice has none.
INTERNAL: Final = "$_management_internal"

NONE: Final = "none"
LINK_ROUTES: Final = "link-routes"  # `none` for an edge router, which may still make its own link routes
READ: Final = "read"
OPERATE: Final = "operate"
ALL: Final = "all"
#: Roles that a group may have, each with the rights of those before it.
ROLES: Final = (NONE, READ, OPERATE, ALL)
_ORDER: Final = (NONE, LINK_ROUTES, READ, OPERATE, ALL)
_KEPT: Final = "-keep-connections"


class ManagementRights(NamedTuple):
    """Rights of a client. closes: requests may close connections (`allowAdminStatusUpdate`), where the role may."""

    role: str = ALL
    closes: bool = True

    @property
    def unlimited(self) -> bool:
        """Whether requests are judged by nothing."""
        return self.role == ALL and self.closes

    def includes(self, role: str) -> bool:
        """Whether the role is at least this one."""
        return _ORDER.index(self.role) >= _ORDER.index(role)

    def limited(self, other: "ManagementRights") -> "ManagementRights":
        """Return the rights that both have."""
        role = self.role if other.includes(self.role) else other.role
        return ManagementRights(role, self.closes and other.closes)

    @property
    def name(self) -> str:
        """The last segment of the address of requests with these rights."""
        return self.role + ("" if self.closes or self.role not in (OPERATE, ALL) else _KEPT)


UNLIMITED: Final = ManagementRights()
#: Rights that an address may carry, by name.
CARRIED: Final = {
    each.name: each
    for each in (
        ManagementRights(READ, closes=False),
        ManagementRights(OPERATE),
        ManagementRights(OPERATE, closes=False),
        ManagementRights(ALL, closes=False),
    )
}
#: Addresses of this router for requests that carry rights, by key; management does not list them.
SERVED: Final = {key(LOCAL, f"{MANAGEMENT}/{name}"): rights for name, rights in CARRIED.items()}


def by_name(name: str | None) -> ManagementRights:
    """Return the rights with a name; None: all."""
    if name is None:
        return UNLIMITED
    return CARRIED.get(name) or ManagementRights(name, closes=False)


def _split(text: str) -> tuple[str, str]:
    """Divide a normalised address into what names a router (or nothing), and the name at that router."""
    places = {"_local": 1, "_edge": 2, "_topo": 3}.get(text.partition("/")[0], 0)
    parts = text.split("/", places)
    return ("", text) if len(parts) <= places else ("/".join(parts[:places]), parts[places])


def _node(name: str) -> str | None:
    """Return the management node that a name is for; None: it is for something else."""
    node = name.partition("/")[0]
    return node if node in (MANAGEMENT, INTERNAL) else None


def is_of_another_router(text: str, router_id: str) -> bool:
    """Whether an address, as a client writes it, is for the agent of another router than this one."""
    place, name = _split(normalise(text))
    return _node(name) is not None and _is_elsewhere(place, router_id)


def _is_elsewhere(place: str, router_id: str) -> bool:
    own = (f"_edge/{router_id}", f"_topo/{OWN_AREA}/{router_id}", f"_topo/{EVERY}/{router_id}")
    return place not in ("", "_local", *own)


def forbids(rights: ManagementRights, text: str) -> bool:
    """Whether an address, as a client writes it, is for an agent that the client may ask for nothing."""
    place, name = _split(normalise(text))
    return _node(name) is not None and (rights.role == NONE or (rights.role == LINK_ROUTES and place != ""))


def address_for(text: str, rights: ManagementRights, router_id: str) -> str | None:
    """Return the address that messages of a client with these rights have in place of `text`; None: it is forbidden.

    An address for something else, or for the agent of this router, which looks at each request, stays as it is.
    """
    place, name = _split(normalise(text))
    node = _node(name)
    if node is None or rights.unlimited:
        return text
    if forbids(rights, text):
        return None
    if not _is_elsewhere(place, router_id):
        return text
    carried = CARRIED.get(name[len(node) + 1 :], UNLIMITED)
    return f"{place}/{node}/{rights.limited(carried).name}"
