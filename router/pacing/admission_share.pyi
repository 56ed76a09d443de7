SMALL_SHARE_DIVISOR: int
LARGE_SHARE_DIVISOR: int
LONG_WAIT_MS: int
ACTIVE_MS: int

def share_divisor(waited: int) -> int: ...
