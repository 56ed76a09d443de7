"""Vhost configurations for tests."""

import json
from typing import Any

from sluice.router.config.entities import Configuration
from sluice.router.config.load import load_text
from sluice.router.policy.rules import VhostRules, Vhosts


def configuration(*vhosts: dict[str, Any], **policy: Any) -> Configuration:
    """Return a configuration with vhosts that have these attributes."""
    sections = [["policy", {"enableVhostPolicy": True, **policy}], *(["vhost", vhost] for vhost in vhosts)]
    return load_text("x.json", json.dumps(sections))


def vhosts(*attributes: dict[str, Any], **policy: Any) -> Vhosts:
    """Return the rules of vhosts that have these attributes."""
    found = configuration(*attributes, **policy)
    return Vhosts(found.policy, found.vhosts)


def vhost(groups: dict[str, Any], **attributes: Any) -> VhostRules:
    """Return the rules of a single vhost `v`."""
    (found,) = vhosts({"hostname": "v", "groups": groups, **attributes})
    return found
