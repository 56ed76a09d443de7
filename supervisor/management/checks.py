"""Checks of what CREATE asks for, with the texts and in the order of 1.19 (management specification 5.8)."""

from collections.abc import Mapping
from typing import Any, Final

from router.routing.exchange_keys import KeyMatcher
from router.routing.settings import BALANCED, CLOSEST, MULTICAST, UNAVAILABLE

PHASES: Final = range(10)
MAX_PRIORITY: Final = 9
_DISTRIBUTIONS: Final = (MULTICAST, CLOSEST, BALANCED, UNAVAILABLE)
_OVERFLOW: Final = "presettledOverflow"  # our own


class Refused(Exception):
    """The object cannot be; the text says why."""


def map_of(body: Any) -> Mapping[Any, Any]:
    """The body, which has to be a map."""
    if not isinstance(body, dict):
        raise Refused("Body of request must be a map")
    return body


def stripped(text: str | None) -> str | None:
    """A prefix or pattern without separators at its ends."""
    return None if text is None else text.strip("./")


def address(body: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes of an address setting. Values are not converted: what is not true is false."""
    prefix, pattern = body.get("prefix"), body.get("pattern")
    if prefix is None and pattern is None:
        raise Refused("Either a 'prefix' or 'pattern' attribute must be provided")
    if prefix is not None and pattern is not None:
        raise Refused("Cannot specify both a 'prefix' and a 'pattern' attribute")
    waypoint = body.get("waypoint") is True
    fallback = body.get("fallback") is True or body.get("enableFallback") is True
    phases = [_number(body.get(name)) for name in ("ingressPhase", "egressPhase")]
    if fallback and (waypoint or any(phase is not None and phase > 0 for phase in phases)):
        raise Refused("Fallback cannot be specified with waypoint or non-zero ingress and egress phases")
    name = "prefix" if pattern is None else "pattern"
    attributes: dict[str, Any] = {name: _tokens(name, prefix if pattern is None else pattern)}
    if phases != [None, None]:
        if not all(phase in PHASES for phase in phases):
            raise Refused("Phase values must be between 0 and 9")
        attributes["ingressPhase"], attributes["egressPhase"] = phases
    priority = _number(body.get("priority"))
    if priority is not None and priority > MAX_PRIORITY:
        raise Refused("Priority value, if present, must be between 0 and QDR_MAX_PRIORITY")
    if priority is not None and priority >= 0:
        attributes["priority"] = priority
    if body.get(_OVERFLOW) is not None:
        attributes[_OVERFLOW] = body[_OVERFLOW]
    distribution = body.get("distribution")
    attributes["distribution"] = distribution if distribution in _DISTRIBUTIONS else BALANCED
    attributes["waypoint"] = waypoint
    attributes["enableFallback"] = fallback
    return attributes


def _tokens(name: str, value: Any) -> str:
    """A prefix or pattern without separators at its ends."""
    if not isinstance(value, str) or not value:
        raise Refused(f"{name.capitalize()} must be a non-empty string type")
    text = value.strip("./")
    if not text:
        raise Refused(f"{name.capitalize()} invalid - no tokens")
    return text


def required(body: Mapping[Any, Any], name: str, text: str) -> None:
    """Refuse with `text` unless the attribute is a text."""
    if not isinstance(body.get(name), str) or not body[name]:
        raise Refused(text)


def exchange(body: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes of an exchange with an address."""
    method = body.get("matchMethod")
    if method is None:
        method = "amqp"
    if method not in ("amqp", "mqtt"):
        raise Refused("Exchange matchMethod must be either 'amqp' or 'mqtt'")
    attributes = {"address": str(body["address"]), "phase": _phase(body.get("phase")), "matchMethod": str(method)}
    if isinstance(body.get("alternateAddress"), str) and body["alternateAddress"]:
        attributes["alternateAddress"] = str(body["alternateAddress"])
        attributes["alternatePhase"] = _phase(body.get("alternatePhase"))
    return attributes


def binding(body: Mapping[Any, Any], match_method: str) -> dict[str, Any]:
    """The attributes of a binding of an exchange that is there."""
    required(body, "nextHopAddress", "No next hop specified")
    key = body.get("bindingKey")
    key = str(key) if isinstance(key, str) and key else "#"
    try:
        KeyMatcher(match_method).bind(key, 0)
    except ValueError as error:
        raise Refused("The binding key pattern is invalid") from error
    return {
        "exchangeName": str(body["exchangeName"]),
        "bindingKey": key,
        "nextHopAddress": str(body["nextHopAddress"]),
        "nextHopPhase": _phase(body.get("nextHopPhase")),
    }


def _phase(value: Any) -> int:
    phase = _number(value) if value is not None else 0
    if phase not in PHASES:
        raise Refused("phase must be in the range 0-9")
    return int(phase)  # type: ignore[arg-type]  # None is in no range


def _number(value: Any) -> int | None:
    """An integer, or decimal text; None when there is none, and -1 for what is no number."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("+-").isdigit() and value.isascii() and len(value) < 20:
        try:
            return int(value)
        except ValueError:
            return -1
    return -1
