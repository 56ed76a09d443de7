"""Configured token issuer with the source of its keys: a watched file, or a URL."""

from collections.abc import Callable
from typing import Final

from sluice.supervisor.auth.messages import ProviderState, TokenIssuer
from sluice.supervisor.auth.tokens import MAX_JWKS, FileKeys, Issuer, Key, KeysError, KeySource, UrlKeys, parse_keys
from sluice.supervisor.auth.watched_files import WatchedFile, file_state


class ConfiguredIssuer:
    """Token issuer with its key source, which `stop` stops. Owner: the process."""

    def __init__(self, config: TokenIssuer, log: Callable[[str, str], None]) -> None:
        """Start reading keys if they come from a URL. log: called with level and text, in any thread."""
        self.file: WatchedFile[list[Key]] | None = None
        self._url: UrlKeys | None = None
        source: KeySource
        if config.jwks_url is not None:
            source = self._url = UrlKeys(config.jwks_url, config.ca_file, config.refresh_seconds, log)
            self._url.start()
        else:
            self.file = WatchedFile(config.jwks_file or "", _read, log, f"tokenIssuer {config.name}")
            source = FileKeys(self.file.get, self.file.look)
        self.issuer: Final = Issuer(config, source)

    @property
    def state(self) -> ProviderState:
        """State of the issuer. With a URL it is always usable, because a failing server is no configuration error."""
        if self.file is not None:
            return file_state("tokenIssuer", self.issuer.config.name, self.file)
        assert self._url is not None
        return ProviderState("tokenIssuer", self.issuer.config.name, True, self._url.problem is None, self._url.state)

    def stop(self) -> None:
        """Stop reading keys."""
        if self._url is not None:
            self._url.stop()


def _read(path: str) -> list[Key]:
    """Read the keys of a file. Raises KeysError, OSError."""
    with open(path, "rb") as file:
        octets = file.read(MAX_JWKS + 1)
    if len(octets) > MAX_JWKS:
        raise KeysError(f"the document has more than {MAX_JWKS} octets")
    return parse_keys(octets)
