"""User name that a client claims in its initial response. The claim is not verified."""

from typing import Final

MOST_OCTETS: Final = 256  # octets of the response that are searched
_SEPARATOR: Final = "\x01"


def claimed_user(mechanism: str, response: bytes) -> str:
    """Return the user name in the initial response of a mechanism, without decoding; empty if it has none."""
    text = response[:MOST_OCTETS].decode("utf-8", "replace")
    if mechanism == "PLAIN":
        return text.partition("\0")[2].partition("\0")[0]
    if mechanism.startswith("SCRAM-"):
        names = [part for part in text.split(",") if part.startswith("n=")]
        return names[0][2:] if names else ""
    if mechanism == "OAUTHBEARER":
        names = [part for part in text.partition(_SEPARATOR)[0].split(",") if part.startswith("a=")]
        return names[0][2:] if names else ""
    if mechanism == "XOAUTH2":
        return text.partition(_SEPARATOR)[0].removeprefix("user=")
    return ""
