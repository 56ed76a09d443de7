"""Connection settings of the clients."""

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from proton import SSLDomain


def settings(where: str) -> dict[str, Any]:
    """Return the arguments of `Container.connect`.

    `where` is a port, or amqps://USER:PASSWORD@HOST:PORT?mechanism=M&ca=FILE&certificate=FILE&key=FILE, or an amqp
    URL without the files.
    """
    if "://" not in where:
        return {"url": f"amqp://127.0.0.1:{where}", "reconnect": False, "allowed_mechs": "ANONYMOUS"}
    parts = urlsplit(where)
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    found = {
        "url": f"{parts.scheme}://{parts.hostname}:{parts.port}",
        "reconnect": False,
        "allowed_mechs": given["mechanism"],
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }
    if parts.scheme == "amqps":
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(given["ca"])
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, given["ca"])
        if "certificate" in given:
            domain.set_credentials(given["certificate"], given["key"], None)
        found["ssl_domain"] = domain
    return found
