"""Access to metrics and to details of health checks: by certificate, or by the listener's token."""

import asyncio
import hmac
from collections.abc import Mapping
from functools import partial
from typing import Final

from sluice.router.config.entities import ListenerConfig
from sluice.router.config.password import find, in_file, is_password_reference
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.runtime.threads import Threads

READ_SECONDS: Final = 5.0  # timeout for the file of a token
MOST_READERS: Final = 4
SCHEME: Final = "bearer"


class MetricsTokens:
    """Check of clients' tokens. Owner: the pages of the HTTP service."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: ProcessLog) -> None:
        self._threads: Final = Threads(loop, "metrics tokens", MOST_READERS)
        self._log: Final = log

    async def known(self, listener: ListenerConfig, headers: Mapping[str, str], certified: bool) -> bool:
        """Return whether a client may see more than a verdict. certified: TLS has verified its certificate.

        A listener that requires login, but has no method for HTTP, shows nothing more.
        """
        if certified or (not listener.authenticate_peer and listener.metrics_token is None):
            return True
        scheme, _, shown = headers.get("Authorization", "").partition(" ")
        if listener.metrics_token is None or scheme.lower() != SCHEME or not shown:
            return False
        wanted = await self._token(listener)
        return bool(wanted) and hmac.compare_digest(wanted.encode(), shown.strip().encode("utf-8", "surrogateescape"))

    async def _token(self, listener: ListenerConfig) -> str:
        """Return the present token, or an empty string if it cannot be read."""
        written = listener.metrics_token or ""
        try:
            if in_file(written):
                found = await self._threads.run(partial(find, written), READ_SECONDS)
            else:
                found = find(written)
        except OSError as error:  # timeout, or no free thread
            text = f"metricsToken of listener {listener.name} cannot be read, so no token is accepted: "
            self._log.repeated(WARNING, "HTTP", "token", text + (error.strerror or "it takes too long"))
            return ""
        if found.text == written and is_password_reference(written):
            text = f"metricsToken of listener {listener.name} cannot be read, so no token is accepted"
            self._log.repeated(WARNING, "HTTP", "token", text)
            return ""
        return found.text
