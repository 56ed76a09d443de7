"""TLS versions that `protocols` of an sslProfile may name, for contexts of the standard library."""

import ssl
from collections.abc import Sequence
from typing import Final

# From the oldest to the newest: the version, and the option of OpenSSL that excludes it.
VERSIONS: Final = {
    "TLSv1": (ssl.TLSVersion.TLSv1, ssl.OP_NO_TLSv1),
    "TLSv1.1": (ssl.TLSVersion.TLSv1_1, ssl.OP_NO_TLSv1_1),
    "TLSv1.2": (ssl.TLSVersion.TLSv1_2, ssl.OP_NO_TLSv1_2),
    "TLSv1.3": (ssl.TLSVersion.TLSv1_3, ssl.OP_NO_TLSv1_3),
}


def limit_versions(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Allow only the TLS versions with these names; no names: no restriction. Raises ValueError."""
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise ValueError(f"protocols: '{unknown[0]}' is none of {', '.join(VERSIONS)}")
    if not names:
        return
    numbers = [VERSIONS[name][0] for name in names]
    context.minimum_version, context.maximum_version = min(numbers), max(numbers)
    for name, (_, without) in VERSIONS.items():
        if name not in names:
            context.options |= without
    if min(numbers) < ssl.TLSVersion.TLSv1_2:
        # OpenSSL's default security level has no signature algorithm for versions before 1.2.
        context.set_ciphers("DEFAULT:@SECLEVEL=0")


def missing_between(names: Sequence[str]) -> list[str]:
    """Return the TLS versions missing between the oldest and the newest one.

    A server of OpenSSL accepts such lists. A client of OpenSSL ignores all versions above the first missing one.
    """
    order = list(VERSIONS)
    places = [order.index(name) for name in names if name in VERSIONS]
    return [name for name in order[min(places) : max(places)] if name not in names] if places else []
