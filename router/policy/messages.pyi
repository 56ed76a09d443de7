from collections.abc import Callable

from sluice.router.policy.names import NameRules

class MessageRules:
    def __init__(
        self,
        targets: NameRules,
        user: str | None,
        proxies: bool,
        on_denied: Callable[[], object],
        *,
        rights: str | None = None,
    ) -> None: ...
    @property
    def proxies(self) -> bool: ...
    @property
    def rights(self) -> str | None: ...
    def change(self, targets: NameRules, proxies: bool, rights: str | None) -> None: ...
    def take(self) -> tuple[int, int, str | None]: ...
