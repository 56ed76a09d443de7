"""Open of a connection: the peer's, the supervisor's decision about it, and the router's.

routing-semantics.md 1.3, C-5; security.md S-5, T-8, T-9.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.amqp.codec import encode_symbols
from sluice.router.amqp.connection import Pause
from sluice.router.amqp.errors import RESOURCE_LIMIT
from sluice.router.control import login_messages
from sluice.router.control import messages as control
from sluice.workers.connections.open_properties import open_properties, plain_map
from sluice.workers.connections.role import STREAMING
from sluice.workers.connections.router import announced
from sluice.workers.revocations import REVOKED

if TYPE_CHECKING:
    from sluice.router.amqp.connection import RemoteOpen
    from sluice.workers.connections.handler import ConnectionHandler

CAPABILITIES: Final = encode_symbols(["ANONYMOUS-RELAY", STREAMING])
POLICY_ERROR: Final = "amqp:connection:policy-error"  # used in the log only
EXTERNAL: Final = "EXTERNAL"
UNDECIDED: Final = "the supervisor of the router did not answer in time"


def unmet_requirement(client: "ConnectionHandler", sasl: bool) -> tuple[str, str] | None:
    """Return the listener's requirement that a client fails to meet when it begins a layer. sasl: the SASL layer."""
    if client.initiate is not None:
        return None
    if client.profile.require_encryption and client.open_transport.tls is None:
        return POLICY_ERROR, "Client connection unencrypted - forbidden"
    if not sasl and client.profile.authenticate_peer and client.login.sasl is None:
        return POLICY_ERROR, "Client skipped authentication - forbidden"
    return None


def read_open(client: "ConnectionHandler", remote: "RemoteOpen") -> None:
    """Admit the peer and report its open, or ask the supervisor about it. Then nothing more is read until it has
    decided."""
    client.container = remote["container"]
    properties = plain_map(remote["properties"])
    client.role.read_open(client, properties, remote["offered"])
    client.login.complete(client)
    message = control.Opened(
        conn=client.number,
        container=client.container,
        hostname=remote["hostname"],
        user=client.login.user,
        mechanism=client.login.mechanism,
        properties=properties,
        tls=client.open_transport.tls,
    )
    if client.router is not None:
        client.router.announced = message.announced = announced(remote["raw_properties"])
    if client.admits and client.login.mechanism != EXTERNAL:  # the supervisor knows the users of certificates
        message.admitted = True
        client.worker.control.send_event(message)
        admit(client)
    else:
        client.connection.pause(Pause.PAUSE_OPEN)
        client.worker.admissions.ask(client, message)


def apply_admission(client: "ConnectionHandler", message: control.Admitted | control.Denied) -> None:
    """Handle the supervisor's decision about the open."""
    client.worker.admissions.done(client)
    if client.connection.ended:
        return
    client.role.mark = message.mark
    if isinstance(message, control.Denied):
        deny(client, message.condition, message.description)
        return
    client.role.edge = message.edge
    client.policy.tenant = message.tenant
    if message.limits is not None:
        client.policy.limit(message.limits)
    if admit(client):
        client.connection.resume(Pause.PAUSE_OPEN)


def admit(client: "ConnectionHandler") -> bool:
    """Let the peer use the connection. False: its certificate has been revoked since the TLS handshake."""
    if client.worker.revocations.is_revoked(client):
        deny(client, *REVOKED)
        return False
    if client.initiate is None:
        send_open(client, None)
    elif client.router is not None:
        client.router.begin()
    client.open_transport.schedule()
    return True


def deny(client: "ConnectionHandler", condition: str, description: str) -> None:
    """Close a connection instead of using it."""
    if client.initiate is None:
        send_open(client, None)
    client.connection.close(condition, description)


def refuse_undecided(client: "ConnectionHandler") -> None:
    """Refuse a client about which the supervisor has not decided in time."""
    if client.connection.ended:
        return
    refusal = login_messages.SaslOutcome(conn=client.number, user=None, reason=UNDECIDED)
    if not client.login.answer(refusal):
        deny(client, RESOURCE_LIMIT, UNDECIDED)


def send_open(client: "ConnectionHandler", hostname: str | None) -> None:
    """Send the router's open. hostname: of the peer, if the router opened the connection."""
    client.connection.send_open(
        client.worker.router.id,
        hostname=hostname,
        properties=open_properties(client),
        offered=CAPABILITIES,
        desired=CAPABILITIES,
    )
