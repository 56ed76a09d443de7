"""Names of Dispatch 0.x in configuration files that later versions do not know, with their present form."""

from typing import Final

_PROFILE: Final = "move it to an sslProfile, and name that with sslProfile"
_ENDPOINT: Final = {
    "addr": "write 'host'",
    "certDb": _PROFILE,
    "certFile": _PROFILE,
    "keyFile": _PROFILE,
    "passwordFile": _PROFILE,
}
_SECTIONS: Final = {
    "container": "write section 'router', with workerThreads, and with id for containerName",
    "fixedAddress": "write section 'address', with distribution for fanout and bias",
    "linkRoutePattern": "write section 'linkRoute' twice, with direction in and out, and with connection for connector",
    "waypoint": "write section 'address' with waypoint: yes, and two sections 'autoLink'",
    "policyRuleset": "write section 'vhost'",
    "policyAppSettings": "write the settings into groups of a section 'vhost'",
}
_ATTRIBUTES: Final = {
    "router": {
        "routerId": "write 'id'",
        "containerName": "write 'id'",
        "workerThreadCount": "write 'workerThreads'",
    },
    "listener": {
        **_ENDPOINT,
        "requirePeerAuth": "write 'authenticatePeer'",
        "allowNoSasl": "write 'authenticatePeer: no' for allowNoSasl: yes",
        "allowUnsecured": "write 'requireSsl', with the opposite value",
    },
    "connector": _ENDPOINT,
    "router.config.address": {
        "fanout": "write 'distribution': multicast for multiple",
        "bias": "write 'distribution': closest, or balanced for spread",
        "phase": "write 'ingressPhase' and 'egressPhase'",
    },
    "router.config.linkRoute": {"connector": "write 'connection'"},
    "router.config.autoLink": {"connector": "write 'connection'"},
    "log": {"level": "write 'enable', such as info+"},
    "policy": {
        "maximumConnections": "write 'maxConnections'",
        "enableAccessRules": "write 'enableVhostPolicy'",
        "policyFolder": "write 'policyDir'",
        "defaultApplication": "write 'defaultVhost'",
        "defaultApplicationEnabled": "leave it out, or write 'defaultVhost:' with the name of a vhost",
    },
}
_VALUES: Final = {
    ("log", "module", "CONFIG"): "leave the section out",
    ("listener", "role", "on-demand"): "write 'route-container'",
    ("connector", "role", "on-demand"): "write 'route-container'",
}


def section_advice(name: str) -> str:
    """Return advice on a section of 0.x, in parentheses after a blank; empty for other names."""
    return _shown(_SECTIONS.get(name))


def attribute_advice(entity_type: str, name: str) -> str:
    """Return advice on an attribute of 0.x in a section of this type (short name); empty for other names."""
    return _shown(_ATTRIBUTES.get(entity_type, {}).get(name))


def value_advice(entity_type: str, name: str, value: object) -> str:
    """Return advice on a value of 0.x; empty for other values."""
    return _shown(_VALUES.get((entity_type, name, value)) if isinstance(value, str) else None)


def _shown(advice: str | None) -> str:
    return "" if advice is None else f" (a name of 0.x: {advice})"
