from collections.abc import Iterable
from typing import Final

USER: Final[str]

class NameRules:
    def permits(self, address: str, user: str | None) -> bool: ...

class NameList(NameRules):
    everything: bool
    def __init__(self, items: Iterable[str]) -> None: ...

class NamePatterns(NameRules):
    def __init__(self, items: Iterable[str]) -> None: ...

def compile_names(items: Iterable[str], patterns: bool) -> NameRules: ...
def item_fault(item: str, pattern: bool) -> str | None: ...
