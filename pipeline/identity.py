"""Identities of landing folders and of their logs, in files and in the offsets of streams.

A folder or log that is made anew has the path and the numbers of the old one, and another identity: a random name in
_sluice.json and in LANDER/ADDRESS/_log.json. Each segment also has the identity of its log. What earlier releases made
has none; unknown identities are equal to all others.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from sluice.pipeline.errors import LandingError
from sluice.router import json_codec

#: Key of the identities in an offset, beside those of logs (LANDER/ADDRESS).
IDENTITIES = "_ids"
#: Key of the folder among the identities.
FOLDER = ""

Identities = dict[str, str]


def new_identity() -> str:
    return uuid.uuid4().hex


def parse_identity(octets: bytes, where: str) -> str | None:
    """Return the identity in a JSON file; None if an earlier release wrote it. Raises LandingError."""
    try:
        found = json_codec.decode(octets).get("id")
    except (ValueError, AttributeError):
        raise LandingError(f"{where} is damaged: {octets[:80]!r}") from None
    if found is not None and not isinstance(found, str):
        raise LandingError(f"{where} is damaged: {octets[:80]!r}")
    return found


def differ(one: str | None, other: str | None) -> bool:
    """Return True if two identities are known and not equal."""
    return one is not None and other is not None and one != other


def split_offset(found: Mapping[str, Any]) -> tuple[dict[str, Any], Identities]:
    """Split an offset of a stream into the offset without identities, and the identities."""
    offset = dict(found)
    identities = offset.pop(IDENTITIES, {})
    if not isinstance(identities, dict):
        raise LandingError(f"the checkpoint has {IDENTITIES} of another source")
    return offset, identities


def join_offset(offset: Mapping[str, Any], identities: Identities) -> dict[str, Any]:
    """Return the offset that Spark stores. Equal offsets must be equal texts, so keys are sorted."""
    return dict(sorted({**offset, IDENTITIES: dict(sorted(identities.items()))}.items()))
