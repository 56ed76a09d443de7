"""Errors of a configuration, with file and line; all errors of a file are reported together."""


class ConfigError(Exception):
    """The configuration cannot be used.

    `path` and `line` say where (`line` counts from 1; None: the file as a whole), `message` what is wrong. `errors`
    holds every error found in the same file in order of lines, this one first; `warnings` what else was found, as (log
    module, text). `kind` is the class that Dispatch prints before errors found when it creates entities; None: found
    while reading the file.
    """

    def __init__(self, path: str, line: int | None, message: str, kind: str | None = None) -> None:
        super().__init__(path, line, message)
        self.path = path
        self.line = line
        self.message = message
        self.kind = kind
        self.errors: tuple[ConfigError, ...] = (self,)
        self.warnings: list[tuple[str, str]] = []

    def __str__(self) -> str:
        if self.line is None:
            return f"{self.path}: {self.message}"
        return f"{self.path}:{self.line}: {self.message}"


class ConfigFileError(ConfigError):
    """The file could not be read. `summary` is the fixed text of Dispatch."""

    def __init__(self, path: str, summary: str, detail: str) -> None:
        super().__init__(path, None, detail)
        self.summary = summary


class RequestError(Exception):
    """A refused management request: status (400, 404, 501, ...) and text of its response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Problems:
    """Problems of one file: errors, which stop the router, and warnings, which are logged.

    Owner: the one call of `load` that created it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.errors: list[ConfigError] = []
        self.warnings: list[tuple[str, str]] = []

    def error(self, line: int | None, message: str, kind: str | None = None, file: str | None = None) -> None:
        """Record an error at `line`; `file`: where it is in another file than the one that is read."""
        self.errors.append(ConfigError(file or self.path, line, message, kind))

    def include(self, other: "Problems") -> None:
        """Record what was found in another file."""
        self.errors += other.errors
        self.warnings += other.warnings

    def warn(self, module: str, line: int, text: str) -> None:
        """Record a warning for log module `module`; the place, if it is one in a file, is appended to `text`."""
        self.warnings.append((module, f"{text} ({self.path}:{line})" if line else text))

    def raise_errors(self) -> None:
        """Raise the first error, carrying all of them, if there is any."""
        if self.errors:
            ordered = sorted(self.errors, key=lambda error: (error.path != self.path, error.path, error.line or 0))
            first = ordered[0]
            first.errors, first.warnings = tuple(ordered), self.warnings
            raise first
