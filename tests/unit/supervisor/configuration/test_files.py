"""Attributes that name files or secrets: management may set them only if the configuration file allows it."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.config.entity import EntityConfig
from sluice.router.config.load import load_text
from sluice.router.config.schema import SCHEMA
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.files import FORBIDDEN, check_files

CONFIGURATION = """
log {
    module: DEFAULT
    outputFile: /var/log/router
}
sslProfile {
    name: p
    caCertFile: /ca
}
"""


def present(kind: str) -> EntityConfig:
    """Return the configured entity of a type."""
    configuration = load_text("router.conf", CONFIGURATION)
    return configuration.ssl_profiles[0] if kind == "sslProfile" else configuration.logs[0]


def check(kind: str, attributes: object, before: EntityConfig | None = None) -> None:
    check_files(SCHEMA.types[kind], attributes, before)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("sslProfile", {"certFile": "/etc/passwd"}),
        ("sslProfile", {"password": "file:/etc/shadow"}),
        ("sslProfile", {"password": "env:SECRET"}),
        ("sslProfile", {"password": "fd:3"}),
        ("log", {"outputFile": "/etc/cron.d/x"}),
        ("log", {"output": "/etc/cron.d/x"}),
        ("listener", {"httpRootDir": "/"}),
    ],
)
def test_new_entity_with_file_or_secret_is_refused(kind: str, attributes: dict[str, Any]) -> None:
    (name,) = attributes
    with pytest.raises(ChangeError, match=f"Attribute '{name}' of .*{kind} names a file or a secret") as caught:
        check(kind, attributes)
    assert caught.value.status == FORBIDDEN


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("sslProfile", {"password": "pass:secret"}),
        ("sslProfile", {"password": "secret"}),
        ("sslProfile", {"certFile": ""}),
        ("sslProfile", {"certFile": None}),
        ("sslProfile", {"certFile": 7}),
        ("sslProfile", {"name": "/etc/passwd"}),
        ("log", {"outputFile": "stderr"}),
        ("log", {"outputFile": "syslog"}),
        ("listener", {"host": "/etc/passwd"}),
        ("listener", ["httpRootDir"]),
        ("listener", None),
    ],
)
def test_harmless_attributes_are_left_to_later_checks(kind: str, attributes: object) -> None:
    check(kind, attributes)


def test_present_file_may_be_named_again() -> None:
    check("log", {"outputFile": "/var/log/router", "enable": "debug+"}, present("log"))
    check("log", {"outputFile": None}, present("log"))
    check("sslProfile", {"caCertFile": "/ca"}, present("sslProfile"))
    with pytest.raises(ChangeError):
        check("log", {"outputFile": "/var/log/other"}, present("log"))
    with pytest.raises(ChangeError, match="'certFile'"):
        check("sslProfile", {"certFile": "/ca"}, present("sslProfile"))
