"""User name from a client certificate (security.md S-8, T-20 to T-23). Does no input or output."""

from collections.abc import Mapping
from typing import Final

from sluice.router.control.messages import TlsFacts
from sluice.router.tls.profile import unknown_letter

EXTERNAL: Final = "EXTERNAL"
SEPARATOR: Final = ";"
_FIELDS: Final = {"c": "C", "s": "ST", "l": "L", "o": "O", "u": "OU", "n": "CN"}
_DIGESTS: Final = "125"  # SHA-1, SHA-256, SHA-512, as keys of `TlsFacts.fingerprints`
_NAMES: Final = "die"  # alternative names: host, URI, e-mail address, as keys of `TlsFacts.names`


def user_of(
    mechanism: str | None,
    user: str | None,
    tls: TlsFacts | None,
    uid_format: str | None,
    names: Mapping[str, str] | None,
    prefix: str = "",
) -> str | None:
    """Return the user of a client's connection, or None if the client is anonymous.

    user: the user that SASL reports, if any. uid_format, names, prefix: from the listener's sslProfile.
    """
    if tls is None or (mechanism is not None and (mechanism != EXTERNAL or tls.subject is None)):
        return user
    found = tls.subject or None
    if mechanism is not None and uid_format is not None and not unknown_letter(uid_format):
        uid = formatted(uid_format, tls)
        found = found if uid is None else (names or {}).get(uid) or uid
    return None if found is None else prefix + found


def formatted(uid_format: str, tls: TlsFacts) -> str | None:
    """Return the user id that a valid `uidFormat` makes of a certificate, or None if the certificate has none of the
    fields.
    """
    fields: dict[str, str] = {}
    for name, value in tls.attributes:
        fields.setdefault(name, value)  # the first value of several
    others = {**tls.fingerprints, **tls.names}
    parts = [others.get(each) if each in _DIGESTS + _NAMES else fields.get(_FIELDS[each]) for each in uid_format]
    return SEPARATOR.join(part for part in parts if part) or None
