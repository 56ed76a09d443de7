"""Errors in configurations, with file and line. All errors of a file are reported together."""


class ConfigError(Exception):
    """Error in a configuration.

    `path` and `line` are its place (`line` counts from 1; None: the whole file), `message` is its text. `errors` has
    all errors of the same file in the order of lines, beginning with this one; `warnings` has pairs (log module, text).
    `kind` is the class that Dispatch prints before errors that it finds when it creates entities; None: the error was
    found when the file was read.
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
    """Error for a file that cannot be read. `summary` is the fixed text of Dispatch."""

    def __init__(self, path: str, summary: str, detail: str) -> None:
        super().__init__(path, None, detail)
        self.summary = summary


class RequestError(Exception):
    """Error for a refused management request, with status (400, 404, 501, …) and text of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Problems:
    """Errors of one file, which prevent the router from starting, and warnings, which are logged.

    Owner: the call of `load` that created it. `files`: files and secrets that the configuration names are checked, too.
    `variables`: the file asks for environment variables in values.
    """

    def __init__(self, path: str, *, files: bool = True) -> None:
        self.path = path
        self.files = files
        self.variables = False
        self.errors: list[ConfigError] = []
        self.warnings: list[tuple[str, str]] = []

    def error(self, line: int | None, message: str, kind: str | None = None, file: str | None = None) -> None:
        """Record an error at `line`, in `file` if that is not the file being read."""
        self.errors.append(ConfigError(file or self.path, line, message, kind))

    def include(self, other: "Problems") -> None:
        """Add the errors and warnings of another file."""
        self.errors += other.errors
        self.warnings += other.warnings

    def warn(self, module: str, line: int, text: str) -> None:
        """Record a warning for log module `module`. File and line, if any, are appended to `text`."""
        self.warnings.append((module, f"{text} ({self.path}:{line})" if line else text))

    def raise_errors(self) -> None:
        """Raise the first error, if there is one; it contains all others."""
        if self.errors:
            ordered = sorted(self.errors, key=lambda error: (error.path != self.path, error.path, error.line or 0))
            first = ordered[0]
            first.errors, first.warnings = tuple(ordered), self.warnings
            raise first
