"""`sluice check FILE...`: report errors and insecure settings in configuration files, without starting a router."""

import sys
import time
from collections.abc import Iterable

from sluice.router.config.dangers import Danger, dangers
from sluice.router.config.entities import AuthServiceConfig, Configuration, ConnectorConfig, ListenerConfig
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load
from sluice.router.tls.profile import credential_uses_of, read_profile

DAY = 86400  # seconds
WARN_DAYS = 30  # remaining validity of certificates from which on a warning is printed


def check(paths: Iterable[str], *, strict: bool = False) -> int:
    """Check each file. Return 0 if all are valid, else 1. `strict`: insecure settings count as errors."""
    return max([_check(path, strict) for path in paths], default=0)


def _check(path: str, strict: bool) -> int:
    """Print the errors, warnings and dangers of one file to stderr, and the result to stdout."""
    errors: tuple[ConfigError, ...] = ()
    found: list[Danger] = []
    try:
        configuration = load(path)
        errors, remarks = _look_at_profiles(configuration)
        warnings = [*configuration.warnings, *remarks]
        found = [danger for danger in dangers(configuration) if strict or danger.worst]
    except ConfigError as error:
        errors, warnings = error.errors, error.warnings
    for each in errors:
        print(each, file=sys.stderr)
    for _, text in warnings:
        print(f"warning: {text}", file=sys.stderr)
    for danger in found:
        print(f"danger: {danger}", file=sys.stderr)
    counts = [_count(len(errors), "error"), _count(len(warnings), "warning"), _count(len(found), "danger")]
    print(f"{path}: {', '.join(filter(None, ['' if errors else 'ok', *counts]))}")
    return 1 if errors or (strict and found) else 0


def _look_at_profiles(configuration: Configuration) -> tuple[tuple[ConfigError, ...], list[tuple[str, str]]]:
    """Check the files that sslProfiles name. Return errors, and warnings as (log module, text)."""
    errors: list[ConfigError] = []
    warnings: list[tuple[str, str]] = []
    uses = credential_uses_of(configuration)
    for profile in configuration.ssl_profiles:
        found = read_profile(profile, uses.get(profile.name, ()))
        for fault in (*found.faults, *([] if found.names_fault is None else [found.names_fault])):
            line = profile.lines.get(fault.attribute, profile.line)
            errors.append(ConfigError(configuration.path, line, f"sslProfile '{profile.name}': {fault}"))
        warnings += [(module, text) for module, _, text in found.remarks]
        if profile.ciphers is not None and not profile.protocols:
            text = (
                "it has ciphers and no protocols: TLS 1.2 and 1.3 are used, but not 1.0 and 1.1, which Dispatch allowed"
            )
            warnings.append(("CONN_MGR", f"sslProfile '{profile.name}': {text}"))
        days = None if found.expires is None else int((found.expires - time.time()) // DAY)
        if days is not None and days < WARN_DAYS:
            text = f"the certificate expires in {days} days" if days >= 0 else "the certificate has expired"
            warnings.append(("CONN_MGR", f"sslProfile '{profile.name}': {text}"))
    known = {profile.name for profile in configuration.ssl_profiles}
    services = [each for each in configuration.of_type(AuthServiceConfig.type) if isinstance(each, AuthServiceConfig)]
    endpoints: list[ListenerConfig | ConnectorConfig | AuthServiceConfig]
    endpoints = [*configuration.listeners, *configuration.connectors, *services]
    for endpoint in endpoints:
        if endpoint.ssl_profile is not None and endpoint.ssl_profile not in known:
            text = f"{endpoint.type} '{endpoint.name}': there is no sslProfile '{endpoint.ssl_profile}'"
            errors.append(ConfigError(configuration.path, endpoint.line, text))
    return tuple(sorted(errors, key=lambda error: error.line or 0)), warnings


def _count(number: int, what: str) -> str:
    """Return `2 errors`, `1 error`, or an empty text for 0."""
    return "" if number == 0 else f"{number} {what}" if number == 1 else f"{number} {what}s"
