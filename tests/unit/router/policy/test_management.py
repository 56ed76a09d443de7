"""Addresses of management nodes, and the rights that they carry."""

import pytest

from sluice.router.policy.management import (
    ALL,
    CARRIED_RIGHTS,
    LINK_ROUTES,
    NONE,
    OPERATE,
    READ,
    UNLIMITED,
    ManagementRights,
    address_for,
    forbids_management,
    is_of_another_router,
    rights_by_name,
)

READER = ManagementRights(READ)
OPERATOR = ManagementRights(OPERATE)
CAREFUL = ManagementRights(OPERATE, closes=False)
NOBODY = ManagementRights(NONE)
OWN = (
    "$management", "/$management", "_local/$management", "_topo/0/A/$management", "_topo/all/A/$management",
    "amqp:/_topo/0/A/$management", "_edge/A/$management", "amqp://host/$management", "$management/read",
)  # fmt: skip
OTHERS = ("_topo/0/B/$management", "amqp:/_topo/all/B/$management", "_edge/E/$management", "_topo/1/A/$management")
#: Addresses other than management nodes.
ELSE = ("$managements", "orders/$management", "a.$management", "_topo/0/B/temp.x", "_topo/$management", "", "_topo/0/B")


@pytest.mark.parametrize("text", OWN)
def test_address_of_this_router_is_unchanged(text):
    for rights in (READER, OPERATOR, UNLIMITED):
        assert address_for(text, rights, "A") == text
    assert forbids_management(NOBODY, text)
    assert address_for(text, NOBODY, "A") is None
    assert not is_of_another_router(text, "A")


@pytest.mark.parametrize("text", OTHERS)
def test_address_of_other_router_carries_rights(text):
    plain = text.removeprefix("amqp:/")
    assert address_for(text, UNLIMITED, "A") == text
    assert address_for(text, READER, "A") == f"{plain}/read"
    assert address_for(text, OPERATOR, "A") == f"{plain}/operate"
    assert address_for(text, CAREFUL, "A") == f"{plain}/operate-keep-connections"
    assert address_for(text, ManagementRights(ALL, closes=False), "A") == f"{plain}/all-keep-connections"
    assert address_for(text, NOBODY, "A") is None
    assert is_of_another_router(text, "A")


@pytest.mark.parametrize("text", ELSE)
def test_unrelated_addresses_are_unchanged(text):
    for rights in (READER, NOBODY, UNLIMITED):
        assert address_for(text, rights, "A") == text
        assert not forbids_management(rights, text)


def test_rights_only_decrease_between_routers():
    assert address_for("_topo/0/C/$management/read", OPERATOR, "B") == "_topo/0/C/$management/read"
    assert address_for("_topo/0/C/$management/all-keep-connections", READER, "B") == "_topo/0/C/$management/read"
    kept = "_topo/0/C/$management/operate-keep-connections"
    assert address_for("_topo/0/C/$management/operate", CAREFUL, "B") == kept
    assert address_for("_topo/0/C/$management/no-such", READER, "B") == "_topo/0/C/$management/read"


def test_internal_agent_of_dispatch_is_unreachable_with_limited_rights():
    """No router serves the address that a limited client gets."""
    assert address_for("_topo/0/B/$_management_internal", READER, "A") == "_topo/0/B/$_management_internal/read"
    assert address_for("_topo/0/B/$_management_internal", NOBODY, "A") is None


def test_edge_router_without_role_reaches_only_its_neighbour():
    rights = ManagementRights(LINK_ROUTES)
    assert address_for("$management", rights, "A") == "$management"
    assert not forbids_management(rights, "$management")
    assert address_for("_topo/0/B/$management", rights, "A") is None


@pytest.mark.parametrize("rights", [*CARRIED_RIGHTS.values(), NOBODY, ManagementRights(LINK_ROUTES)], ids=str)
def test_name_of_rights_is_parsed_back(rights):
    found = rights_by_name(rights.name)
    assert found.role == rights.role
    assert found.closes == (rights.closes and rights.role in (OPERATE, ALL))


def test_missing_name_gives_all_rights():
    assert rights_by_name(None).unlimited


def test_limited_rights_are_lesser_of_both():
    assert READER.limited(OPERATOR).role == READ
    assert OPERATOR.limited(READER).role == READ
    assert UNLIMITED.limited(CAREFUL) == CAREFUL
    assert UNLIMITED.limited(UNLIMITED).unlimited
