"""Files for TLS with a collector of OpenTelemetry."""

from typing import NamedTuple

from sluice.router.config.errors import Problems
from sluice.router.config.validate import Entity


class CollectorTls(NamedTuple):
    """Paths of files (PEM) for a collector with https://. The certificate and its key are both set, or neither."""

    ca_cert_file: str | None  # authorities of the collector's certificate; None: those of the system
    cert_file: str | None  # certificate that the router shows to the collector
    key_file: str | None


def build_collector_tls(entity: Entity, problems: Problems) -> CollectorTls:
    """Build the files of a section. Whether they can be used is seen when something is sent."""
    found = CollectorTls(*(entity.optional_text(name) for name in ("caCertFile", "certFile", "privateKeyFile")))
    if (found.cert_file is None) != (found.key_file is None):
        given, missing = ("certFile", "privateKeyFile") if found.key_file is None else ("privateKeyFile", "certFile")
        problems.error(entity.line_of(given), f"{entity.type.long_name}: {given} is set, but {missing} is not")
    return found
