"""Start of the router: load the configuration, set up the log, run the supervisor; in the foreground or detached."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from sluice.router.cli.daemon import Daemon, DaemonError
from sluice.router.cli.streams import discard_missing
from sluice.router.config.entities import Configuration
from sluice.router.config.errors import ConfigError, ConfigFileError
from sluice.router.config.inherited import INHERITED
from sluice.router.config.load import load
from sluice.router.log import LogError, ProcessLog


class StartError(Exception):
    """Raised when the router cannot start. Its text follows the program's name in the last line on stderr."""


class StartOptions(Struct, frozen=True):
    """Options of the command line. `program` is the program's name as started; paths are as given.

    A daemon becomes `user` at its start, as in Dispatch. The router becomes `become_user` and `become_group` once the
    ports are open. `take_over`: process id of the running router to be taken over; 0: the only router with the same id.
    """

    program: str
    config: str
    include: str | None = None
    daemon: bool = False
    pidfile: str | None = None
    user: str | None = None
    become_user: str | None = None
    become_group: str | None = None
    test_hooks: bool = False
    take_over: int | None = None


def start(options: StartOptions) -> int:
    """Run the router and return its exit code. The parent of a detached router returns once the router has started."""
    discard_missing()
    if not options.daemon:
        return _foreground(options)
    sys.stdout.flush()
    sys.stderr.flush()
    config = str(Path(options.config).absolute())
    include = None if options.include is None else str(Path(options.include).absolute())
    daemon = Daemon.detach()
    if daemon.is_parent:
        return _wait(daemon, options.program)
    return _detached(daemon, options, config, include)


def _foreground(options: StartOptions) -> int:
    log = ProcessLog()
    try:
        configuration = _prepare(options.config, options.include, log)
    except StartError as error:
        print(f"{options.program}: {error}", file=sys.stderr)
        return 1
    return _run(configuration, log, options)


def _wait(daemon: Daemon, program: str) -> int:
    """In the parent: wait for the daemon's report, and return the exit code."""
    message = daemon.outcome()
    if message is None:
        return 0
    print(f"{program}: {message}", file=sys.stderr)
    return 1


def _detached(daemon: Daemon, options: StartOptions, config: str, include: str | None) -> int:
    """In the daemon: report to the parent, then run."""
    try:
        daemon.settle(options.pidfile, options.user)
        log = ProcessLog()
        configuration = _prepare(config, include, log)
    except (StartError, DaemonError) as error:
        daemon.report(str(error))
        return 1
    except Exception as error:
        daemon.report(f"internal error: {error!r}")
        raise
    daemon.report(None)
    return _run(configuration, log, options)


def _run(configuration: Configuration, log: ProcessLog, options: StartOptions) -> int:
    user = options.become_user, options.become_group
    try:
        from sluice.supervisor.main import run  # not needed by other commands

        code: int = run(
            configuration,
            log,
            program=options.program,
            test_hooks=options.test_hooks,
            become=user,
            take_over=options.take_over,
        )
    except Exception as error:  # noqa: BLE001 - logged with its traceback
        # The error is also logged, since standard error may be discarded while the log is a file.
        log.critical("MAIN", f"The router has ended after an internal error: {error!r}\n{traceback.format_exc()}")
        print(f"{options.program}: internal error: {error!r}", file=sys.stderr)
        return 1
    return code


def _prepare(config: str, include: str | None, log: ProcessLog) -> Configuration:
    """Load the configuration and set up the log. Log errors, and raise StartError."""
    if include is not None:
        _check_include(include)
    try:
        configuration = load(config)
    except ConfigFileError as error:
        log.error("ERROR", str(error))
        log.critical("MAIN", f"Router start-up failed: {error}")
        raise StartError(error.summary) from error
    except ConfigError as error:
        _log_warnings(error.warnings, log)
        raise StartError(_log_errors(error, log)) from error
    INHERITED.seal()
    try:
        log.apply(configuration.log_settings())
    except LogError as error:
        _log_warnings(configuration.warnings, log)
        text = f"Python: CError: Configuration: {error}"
        log.error("ERROR", text)
        log.critical("MAIN", f"Router start-up failed: {text}")
        raise StartError(text) from error
    return configuration


def _log_warnings(warnings: Sequence[tuple[str, str]], log: ProcessLog) -> None:
    """Log the warnings of an invalid file."""
    for module, text in warnings:
        log.warning(module, text)


def _log_errors(error: ConfigError, log: ProcessLog) -> str:
    """Log all errors of an invalid file. Return the text of the error that Dispatch would report first."""
    texts = []
    for each in error.errors:
        place = "" if each.line is None else f" (line {each.line})"
        kind = each.kind or f"Exception: Cannot load configuration file {each.path}"
        texts.append(f"Python: {kind}: {each.message}{place}")
    for text in texts:
        log.error("ERROR", text)
    reading = (text for text, each in zip(texts, error.errors, strict=True) if each.kind is None)
    first = next(reading, texts[0])
    log.critical("MAIN", f"Router start-up failed: {first}")
    return first


def _check_include(path: str) -> None:
    """Raise StartError for a missing library directory, as in Dispatch. The router does not use the directory."""
    try:
        os.stat(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StartError(f"Cannot find Python library path '{path}': {reason}") from error
    if not Path(path).is_dir():
        raise StartError(f"Run Time: Python library path '{path}' not a directory")
