"""Files of an sslProfile, read and checked in the way connections use them (security.md 3.1, 3.5, 3.8, 3.9)."""

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sluice.router import json_codec
from sluice.router.config import password
from sluice.router.config.entities import Configuration, EndpointConfig, ListenerConfig, SslProfileConfig
from sluice.router.control.ops import Credentials
from sluice.router.tls.context import TlsContext, TlsError

MAX_FILE: Final = 4 << 20  # octets; a file with all public authorities has about 250,000
# Contents used for a file that cannot be read. They are invalid, so connections are refused as with a damaged file
# instead of being made without the file.
UNREADABLE: Final = "\n"
PASSWORD_FORMS: Final = ("pass", "literal")
UID_LETTERS: Final = "csloun125die"  # letters of `uidFormat`; Dispatch knows those up to `5`
READABLE_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

# Attribute of a profile by the part of the credentials that OpenSSL refuses (`TlsError.part`).
_ATTRIBUTES: Final = {
    "certificates": "certFile",
    "key": "privateKeyFile",
    "trusted": "caCertFile",
    "peer": "caCertFile",
    "ciphers": "ciphers",
    "protocols": "protocols",
}

Remark = tuple[str, str, str]  # log module, level, text


class CredentialUse(NamedTuple):
    """Use of credentials by connections. `verify_peer` of a server: clients have to present a certificate."""

    server: bool
    verify_peer: bool


class ProfileFault(NamedTuple):
    """Error in an attribute of a profile, or in the file that it names."""

    attribute: str
    place: str | None  # value of the attribute, such as a path
    reason: str

    def __str__(self) -> str:
        place = "" if self.place is None else f" {self.place}"
        return f"{self.attribute}{place}: {self.reason}"


class Material(Struct, frozen=True):
    """Contents of the files of a profile, with the results of the checks. Times are seconds since the epoch.

    `names` maps the result of `uidFormat` to a user name; None: that result is the user name. `expires` is the earliest
    expiry in the router's certificate chain, `valid` start and end of the validity of the router's own certificate;
    both are None without a certificate. `list_ends` has the expiry of the revocation list by authority. `faults` are
    those of the credentials, `names_fault` is that of the file of names. `digest` covers the credentials.
    """

    credentials: Credentials
    names: Mapping[str, str] | None
    expires: float | None
    valid: tuple[float, float] | None
    list_ends: Mapping[str, float]
    faults: Sequence[ProfileFault]
    names_fault: ProfileFault | None
    remarks: Sequence[Remark]
    digest: bytes
    digest_of_files: bytes  # digest of the credentials without revocation lists from URLs

    def validity_fault(self, now: float) -> str | None:
        """Return the reason why the router's own certificate is not valid at a time (s since the epoch), or None."""
        if self.valid is None:
            return None
        start, end = self.valid
        if now < start:
            return f"the certificate is not valid before {_moment(start)}"
        return f"the certificate expired on {_moment(end)}" if now >= end else None

    def stale_lists(self, now: float) -> list[str]:
        """Return the authorities with expired revocation lists; their certificates are all refused."""
        return [authority for authority, end in self.list_ends.items() if end <= now]


def _moment(seconds: float) -> str:
    """Format a time for texts."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def credential_uses_of(configuration: Configuration) -> dict[str, set[CredentialUse]]:
    """Return the uses of profiles by listeners and connectors, by name of the profile."""
    found: dict[str, set[CredentialUse]] = {}
    endpoints: Iterable[EndpointConfig] = (*configuration.listeners, *configuration.connectors)
    for endpoint in endpoints:
        if endpoint.ssl_profile is not None:
            found.setdefault(endpoint.ssl_profile, set()).add(credential_use_of(endpoint))
    return found


def credential_use_of(endpoint: EndpointConfig) -> CredentialUse:
    """Return the use that a listener or connector makes of its profile."""
    if isinstance(endpoint, ListenerConfig):
        # An HTTP listener requests client certificates only if the profile has an authority to verify them.
        return CredentialUse(server=True, verify_peer=endpoint.verifies_peer and not endpoint.http)
    return CredentialUse(server=False, verify_peer=True)


def files_of(config: SslProfileConfig) -> tuple[str, ...]:
    """Return all files that a profile names."""
    named = [config.certificate_file, config.key_file, config.trusted_file, config.uid_mapping_file]
    if config.password is not None:
        named.append(password.file_of(config.password))
    return tuple(path for path in named if path is not None)


def read_profile(config: SslProfileConfig, uses: Iterable[CredentialUse], revoked: str | None = None) -> Material:
    """Read and check the files of a profile. Errors in files become faults, never exceptions.

    Slow file systems block this call. `revoked` has the revocation lists (PEM) from the URLs of the profile; None: it
    has no URLs.
    """
    faults: list[ProfileFault] = []
    remarks: list[Remark] = []

    def content(attribute: str, path: str | None) -> str | None:
        if path is None:
            return None
        try:
            return _read(path)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            faults.append(ProfileFault(attribute, path, getattr(error, "strerror", None) or str(error)))
            return UNREADABLE

    certificates = content("certFile", config.certificate_file)
    key = content("privateKeyFile", config.key_file)
    trusted = content("caCertFile", config.trusted_file)
    remarks += _exposed(config.key_file or config.certificate_file if certificates is not None else None)
    secret = None
    if config.password is not None:
        secret, remark = password.find(config.password, PASSWORD_FORMS)
        remarks += [] if remark is None else [remark]
    if config.uid_format is not None and (letter := unknown_letter(config.uid_format)) is not None:
        text = f"sslProfile '{config.name}': Unrecognized component '{letter}' in uidFormat: "
        text += "users get the whole subject as name"
        remarks.append(("CONN_MGR", "warning", text))
    credentials = Credentials(
        certificates=certificates,
        key=key,
        password=secret,
        trusted=trusted,
        revoked=revoked,
        ciphers=config.ciphers,
        protocols=list(config.protocols),
        closes_revoked=config.closes_revoked,
    )
    expires, valid, list_ends = None, None, {}
    for use in sorted({*uses} or {CredentialUse(server=False, verify_peer=True)}):
        try:
            context = TlsContext(credentials, server=use.server, verify_peer=use.verify_peer)
        except TlsError as error:
            fault = _fault(config, error)
            if all(each.attribute != fault.attribute for each in faults):
                faults.append(fault)
        else:
            expires, list_ends = context.expires or None, context.list_ends
            valid = (context.valid_from, context.valid_until) if context.valid_until else None
    names, names_fault = _names(config.uid_mapping_file)
    return Material(credentials, names, expires, valid, list_ends, faults, names_fault, remarks, *_digests(credentials))


def unknown_letter(uid_format: str) -> str | None:
    """Return the first invalid letter of a `uidFormat`, or None (security.md T-21)."""
    return next((letter for letter in uid_format if letter not in UID_LETTERS), None)


def _read(path: str) -> str:
    """Read a text file. Raises OSError and ValueError.

    Invalid UTF-8 is replaced, since it can only be in the parts of a PEM file that are ignored.
    """
    with open(path, "rb", opener=password.open_regular) as file:
        octets = file.read(MAX_FILE + 1)
    if len(octets) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE} octets")
    return octets.decode("utf-8", "replace")


def _exposed(path: str | None) -> list[Remark]:
    """Return a warning if other users can read the file with the private key."""
    if path is None:
        return []
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return []  # reading the file has reported the error already
    if not mode & READABLE_BY_OTHERS:
        return []
    return [("CONN_MGR", "warning", f"Private key {path} can be read by others (mode {stat.S_IMODE(mode):04o})")]


def _fault(config: SslProfileConfig, error: TlsError) -> ProfileFault:
    attribute = _ATTRIBUTES[error.part]
    if error.part == "peer":
        return ProfileFault(attribute, None, str(error))
    if error.part == "key" and config.key_file is None:
        return ProfileFault(attribute, config.certificate_file, str(error))
    place = {
        "certFile": config.certificate_file,
        "privateKeyFile": config.key_file,
        "caCertFile": config.trusted_file,
        "ciphers": config.ciphers,
        "protocols": " ".join(config.protocols),
    }[attribute]
    return ProfileFault(attribute, place, str(error))


def _names(path: str | None) -> tuple[Mapping[str, str] | None, ProfileFault | None]:
    """Return the user names in a `uidNameMappingFile`, or the fault (security.md T-23)."""
    if path is None:
        return None, None
    try:
        found = json_codec.decode(_read(path))
    except (OSError, ValueError) as error:  # ValueError: too long, a NUL in the path, or invalid JSON
        return None, ProfileFault("uidNameMappingFile", path, getattr(error, "strerror", None) or str(error))
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        return None, ProfileFault("uidNameMappingFile", path, "it is not a JSON object with names as values")
    return found, None


def _digests(credentials: Credentials) -> tuple[bytes, bytes]:
    """Return the digest of all contents, and the one without revocation lists from URLs.

    The digests cover secrets, and therefore must not leave this process.
    """
    files = (
        credentials.certificates,
        credentials.key,
        credentials.password,
        credentials.trusted,
        credentials.ciphers,
        " ".join(credentials.protocols),
    )
    of_files = _sha256(json_codec.encode(files))
    lists = b"" if credentials.revoked is None else b"lists" + credentials.revoked.encode()
    return _sha256(of_files + lists), of_files


def _sha256(octets: bytes) -> bytes:
    """Return the SHA-256 digest, even if OpenSSL's configuration forbids it, so that this error can be reported."""
    return hashlib.new("sha256", octets, usedforsecurity=False).digest()
