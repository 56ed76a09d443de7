"""Selection of a client's mechanism: the strongest that is offered, allowed and usable (security.md S-10)."""

from collections.abc import Callable, Iterator
from typing import Final

from sluice.router.amqp.sasl import ClientExchange
from sluice.router.sasl.bearer import OAuthBearerClient
from sluice.router.sasl.saslprep import PrepareError
from sluice.router.sasl.scram import ScramClient
from sluice.router.sasl.simple import anonymous_client, external_client, plain_client
from sluice.router.sasl.verifiers import BOUND_MECHANISMS, STRONGEST_FIRST

# All mechanisms of the client, the strongest first.
CLIENT_MECHANISMS: Final = ("EXTERNAL", "OAUTHBEARER", *BOUND_MECHANISMS, *STRONGEST_FIRST, "PLAIN", "ANONYMOUS")


def usable_exchanges(
    allowed: Callable[[str], bool],
    user: str | None,
    password: str | None,
    host: str,
    *,
    external: bool = True,
    token: str | None = None,
    find_binding: Callable[[], bytes | None] | None = None,
) -> Iterator[ClientExchange]:
    """Yield exchanges for the usable mechanisms, the strongest first.

    `allowed` decides by the name of a mechanism. `host` is the name of this machine. `external`: TLS can authenticate
    this client; a server offers EXTERNAL only if it did. `token` is one of OAuth 2.0. `find_binding` returns the
    channel binding of the connection, if it has one; None: channel binding is impossible.
    """
    if external and allowed("EXTERNAL"):
        yield external_client()
    if token is not None and allowed("OAUTHBEARER"):
        yield OAuthBearerClient(token, user or "")
    if user is not None and password is not None:
        bound = [] if find_binding is None else [name for name in BOUND_MECHANISMS if allowed(name)]
        for name in (*bound, *filter(allowed, STRONGEST_FIRST)):
            try:
                yield ScramClient(name, user, password, find_binding=find_binding if bound else None)
            except PrepareError:
                break  # PLAIN sends name and password unprepared
        if allowed("PLAIN"):
            yield plain_client(user, password)
    if allowed("ANONYMOUS"):
        yield anonymous_client(host)
