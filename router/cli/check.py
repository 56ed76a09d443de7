"""`sluice check FILE...`: says what is wrong with configuration files, all of it, and runs nothing."""

import sys
from collections.abc import Iterable

from router.config.errors import ConfigError
from router.config.load import load


def check(paths: Iterable[str]) -> int:
    """Check each file; return 0 if all can be used, 1 if one cannot."""
    return max([_check(path) for path in paths], default=0)


def _check(path: str) -> int:
    """Print the errors and warnings of one file to stderr, and the result to stdout."""
    errors: tuple[ConfigError, ...] = ()
    try:
        warnings = load(path).warnings
    except ConfigError as error:
        errors, warnings = error.errors, error.warnings
    for each in errors:
        print(each, file=sys.stderr)
    for _, text in warnings:
        print(f"warning: {text}", file=sys.stderr)
    counts = [_count(len(errors), "error"), _count(len(warnings), "warning")]
    print(f"{path}: {', '.join(filter(None, ['' if errors else 'ok', *counts]))}")
    return 1 if errors else 0


def _count(number: int, what: str) -> str:
    """Return `2 errors`, `1 error`, or nothing."""
    return "" if number == 0 else f"{number} {what}" if number == 1 else f"{number} {what}s"
