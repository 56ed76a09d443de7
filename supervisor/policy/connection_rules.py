"""Rules and limits of one connection: those of its group, with what its listener adds."""

from typing import Final

from msgspec.structs import replace

from sluice.router.config.entities import MIN_FRAME_SIZE, EndpointConfig
from sluice.router.config.roles import EDGE
from sluice.router.control.messages import Limits
from sluice.router.policy.management import LINK_ROUTES, NONE
from sluice.router.policy.rules import GroupRules, LinkRules, with_service_addresses
from sluice.supervisor.policy.grant import OpenFacts

MAX_FRAME_SIZE: Final = 2**32 - 1


def connection_limits(group: GroupRules, endpoint: EndpointConfig) -> Limits:
    """Return the limits of a group that override those of the listener (security.md P-20, P-21)."""
    config = group.config
    window = config.max_session_window
    if window is None and config.max_frame_size and endpoint.max_session_frames:
        # the listener's window in octets, whatever the frame size
        window = endpoint.max_session_frames * endpoint.max_frame_size
    frame = config.max_frame_size and min(max(config.max_frame_size, MIN_FRAME_SIZE), MAX_FRAME_SIZE)
    return Limits(max_frame=frame, sessions=config.max_sessions, window=window, message=group.links.max_message_size)


def link_rules(group: GroupRules, facts: OpenFacts) -> LinkRules:
    """Return the rules for the links of a connection in a group."""
    rules = group.links if facts.service is None else with_service_addresses(group.links, *facts.service)
    if facts.endpoint.role == EDGE and rules.management.role == NONE and rules.dynamic_link_routes:
        return replace(rules, management=rules.management._replace(role=LINK_ROUTES))
    return rules
