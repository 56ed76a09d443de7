"""Which mechanism a client takes: the strongest that is offered, allowed and possible (security.md S-10)."""

from collections.abc import Callable, Iterator
from typing import Final

from router.amqp.sasl import ClientExchange
from router.sasl.bearer import OAuthBearerClient
from router.sasl.saslprep import PrepareError
from router.sasl.scram import ScramClient
from router.sasl.simple import anonymous_client, external_client, plain_client
from router.sasl.verifiers import BOUND, STRONGEST_FIRST

# All that a client can have, the strongest first.
CLIENT_MECHANISMS: Final = ("EXTERNAL", "OAUTHBEARER", *BOUND, *STRONGEST_FIRST, "PLAIN", "ANONYMOUS")


def ways_in(
    allowed: Callable[[str], bool],
    user: str | None,
    password: str | None,
    host: str,
    *,
    external: bool = True,
    token: str | None = None,
    find_binding: Callable[[], bytes | None] | None = None,
) -> Iterator[ClientExchange]:
    """The mechanisms that can be used, the strongest first. allowed: by name. host: of this machine. external: the
    layer below can say who we are; a server offers EXTERNAL only where it does. token: of OAuth 2.0. find_binding:
    finds the channel binding of the connection; None: there can be none."""
    if external and allowed("EXTERNAL"):
        yield external_client()
    if token is not None and allowed("OAUTHBEARER"):
        yield OAuthBearerClient(token, user or "")
    if user is not None and password is not None:
        bound = [] if find_binding is None else [name for name in BOUND if allowed(name)]
        for name in (*bound, *filter(allowed, STRONGEST_FIRST)):
            try:
                yield ScramClient(name, user, password, find_binding=find_binding if bound else None)
            except PrepareError:
                break  # PLAIN sends it as it is
        if allowed("PLAIN"):
            yield plain_client(user, password)
    if allowed("ANONYMOUS"):
        yield anonymous_client(host)
