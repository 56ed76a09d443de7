from collections.abc import Iterable
from typing import Final

from sluice.router.control.ops import Credentials

SESSION_CONTEXT: Final[bytes]
VERIFIED_CONTEXT: Final[bytes]
VERSIONS: Final[dict[str, int]]
DEFAULT_VERSIONS: Final[tuple[str, ...]]
SERVER_CIPHERS: Final[str]
SERVER_GROUPS: Final[tuple[bytes, ...]]

class TlsError(ValueError):
    part: str
    def __init__(self, part: str, text: str) -> None: ...

class TlsContext:
    def __init__(
        self, credentials: Credentials, *, server: bool, verify_peer: bool = False, optional: bool = False
    ) -> None: ...
    @property
    def server(self) -> bool: ...
    @property
    def expires(self) -> float: ...
    @property
    def valid_from(self) -> float: ...
    @property
    def valid_until(self) -> float: ...
    @property
    def list_ends(self) -> dict[str, float]: ...
    def require_revocation_lists(self) -> None: ...

def default_ciphers(protocols: Iterable[str] | None) -> str | None: ...
