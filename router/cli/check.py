"""`sluice check FILE...`: report errors, warnings and insecure settings of files, without starting a router."""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from sluice.router.cli.output import to_json
from sluice.router.config.dangers import dangers
from sluice.router.config.entities import AuthServiceConfig, Configuration, ConnectorConfig, ListenerConfig
from sluice.router.config.errors import ConfigError, Problems
from sluice.router.config.grammar import parse
from sluice.router.config.lint import lint
from sluice.router.config.load import load, read
from sluice.router.tls.expiry import DAY, WARN_DAYS, describe_expiry
from sluice.router.tls.profile import credential_uses_of, read_profile

_PLACE: Final = re.compile(r"(?P<text>.*) \((?P<file>.+):(?P<line>[0-9]+)\)", re.DOTALL)


class CheckMessage(Struct, frozen=True):
    """Message about a file. `line` is None for the whole file."""

    file: str
    line: int | None
    text: str

    @classmethod
    def of(cls, path: str, shown: str) -> "CheckMessage":
        """Split a text that may end in ` (FILE:LINE)`; without that it concerns the file `path`."""
        match = _PLACE.fullmatch(shown)
        if match is None:
            return cls(path, None, shown)
        return cls(match["file"], int(match["line"]), match["text"])


class CheckResult(Struct, frozen=True):
    """Result for one file. A file with errors cannot be used."""

    file: str
    errors: tuple[CheckMessage, ...]
    warnings: tuple[CheckMessage, ...]
    dangers: tuple[CheckMessage, ...]

    def as_map(self) -> dict[str, Any]:
        """Return the result as plain values."""
        kinds = {"errors": self.errors, "warnings": self.warnings, "dangers": self.dangers}
        lists = {kind: [{"file": each.file, "line": each.line, "text": each.text} for each in found]
                 for kind, found in kinds.items()}  # fmt: skip
        return {"file": self.file, "valid": not self.errors, **lists}


def check(paths: Iterable[str], *, strict: bool = False, files: bool = True, json: bool = False) -> int:
    """Check each file. Return 0 if all are valid, else 1.

    `strict`: insecure settings count as errors. `files`: check the files that a configuration names, too. `json`: print
    the results as one JSON list.
    """
    results = [check_file(path, strict=strict, files=files) for path in paths]
    if json:
        print(to_json([result.as_map() for result in results], 2))
    else:
        for result in results:
            _show(result)
    return int(any(result.errors or (strict and result.dangers) for result in results))


def check_file(path: str, *, strict: bool = False, files: bool = True) -> CheckResult:
    """Check one file."""
    errors: Sequence[ConfigError] = ()
    found: list[str] = []
    try:
        configuration = load(path, files=files)
        errors, remarks = _look_at_profiles(configuration, files=files)
        warnings = [text for _, text in (*configuration.warnings, *remarks)]
        warnings += [str(finding) for finding in lint(configuration, parse(read(path), Problems(path)))]
        found = [str(danger) for danger in dangers(configuration) if strict or danger.worst]
    except ConfigError as error:
        errors, warnings = error.errors, [text for _, text in error.warnings]
    return CheckResult(
        path,
        tuple(CheckMessage(error.path, error.line, error.message) for error in errors),
        tuple(CheckMessage.of(path, text) for text in warnings),
        tuple(CheckMessage.of(path, text) for text in found),
    )


def _show(result: CheckResult) -> None:
    """Print errors, warnings and dangers to stderr, and the result to stdout."""
    for error in result.errors:
        print(f"{error.file}{'' if error.line is None else f':{error.line}'}: {error.text}", file=sys.stderr)
    for kind, messages in (("warning", result.warnings), ("danger", result.dangers)):
        for each in messages:
            place = "" if each.line is None else f" ({each.file}:{each.line})"
            print(f"{kind}: {each.text}{place}", file=sys.stderr)
    counts = [_count(len(result.errors), "error"), _count(len(result.warnings), "warning")]
    counts.append(_count(len(result.dangers), "danger"))
    print(f"{result.file}: {', '.join(filter(None, ['' if result.errors else 'ok', *counts]))}")


def _look_at_profiles(
    configuration: Configuration, *, files: bool
) -> tuple[tuple[ConfigError, ...], list[tuple[str, str]]]:
    """Check the sslProfiles, and with `files` their files. Return errors, and warnings as (log module, text)."""
    errors: list[ConfigError] = []
    warnings: list[tuple[str, str]] = []
    for profile in configuration.ssl_profiles:
        if profile.ciphers is not None and not profile.protocols:
            text = (
                "it has ciphers and no protocols: TLS 1.2 and 1.3 are used, but not 1.0 and 1.1, which Dispatch allowed"
            )
            warnings.append(("CONN_MGR", f"sslProfile '{profile.name}': {text}"))
    if files:
        errors += _profile_files(configuration, warnings)
    known = {profile.name for profile in configuration.ssl_profiles}
    services = [each for each in configuration.of_type(AuthServiceConfig.type) if isinstance(each, AuthServiceConfig)]
    endpoints: list[ListenerConfig | ConnectorConfig | AuthServiceConfig]
    endpoints = [*configuration.listeners, *configuration.connectors, *services]
    for endpoint in endpoints:
        if endpoint.ssl_profile is not None and endpoint.ssl_profile not in known:
            text = f"{endpoint.type} '{endpoint.name}': there is no sslProfile '{endpoint.ssl_profile}'"
            errors.append(ConfigError(configuration.path, endpoint.line, text))
    return tuple(sorted(errors, key=lambda error: error.line or 0)), warnings


def _profile_files(configuration: Configuration, warnings: list[tuple[str, str]]) -> Iterator[ConfigError]:
    """Yield the errors in the files that sslProfiles name, and add warnings about them to `warnings`."""
    uses = credential_uses_of(configuration)
    for profile in configuration.ssl_profiles:
        found = read_profile(profile, uses.get(profile.name, ()))
        for fault in (*found.faults, *([] if found.names_fault is None else [found.names_fault])):
            line = profile.lines.get(fault.attribute, profile.line)
            yield ConfigError(configuration.path, line, f"sslProfile '{profile.name}': {fault}")
        warnings += [(module, text) for module, _, text in found.remarks]
        left = None if found.expires is None else found.expires - time.time()
        if left is not None and left < WARN_DAYS[0] * DAY:
            warnings.append(("CONN_MGR", f"sslProfile '{profile.name}': {describe_expiry(left)}"))


def _count(number: int, what: str) -> str:
    """Return `2 errors`, `1 error`, or an empty text for 0."""
    return "" if number == 0 else f"{number} {what}" if number == 1 else f"{number} {what}s"
