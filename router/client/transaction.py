"""Local transactions of a client (AMQP 1.0 part 4).

    with connection.coordinator().declare() as transaction:
        sender.send(Message("hello"), transaction=transaction)
        transaction.accept(delivery)

The `with` block commits at its end, and rolls back if it is left by an exception. All links of a transaction belong to
the session of the coordinator. A router must send the coordinator and the links of the transaction to one container
(link routes).
"""

from typing import TYPE_CHECKING, Any, Final

from sluice.router.amqp import codec
from sluice.router.client import outcome
from sluice.router.client.attach import Coordinator, Terminus
from sluice.router.client.errors import LinkDetachedError, TransactionError
from sluice.router.client.links import PendingSend, SenderState

if TYPE_CHECKING:
    from sluice.router.client.core import ClientCore
    from sluice.router.client.session import SessionState

DECLARE, DISCHARGE = 0x31, 0x32
VALUE = b"\x00\x53\x77"  # constructor of an amqp-value section
#: Characters of a peer's product, and of its version, in an error.
PRODUCT_MOST: Final = 64
#: Outcomes of the coordinator's link. With `rejected` among them, errors are outcomes and do not end the link (4.2).
OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:declared:list")


class CoordinatorState(SenderState):
    """Link to a coordinator. The transactions that it has declared end when it is detached or lost: rolled back."""

    def __init__(self, session: "SessionState", **options: Any) -> None:
        super().__init__(session, settled=False, source=Terminus(outcomes=OUTCOMES), target=Coordinator(), **options)

    def declare(self) -> PendingSend:
        """Request a transaction, when `ready`. `read_declared` reads the outcome."""
        return self.send(VALUE + bytes(codec.encode_described(DECLARE, [])))

    def discharge(self, txn_id: bytes, fail: bool) -> PendingSend:
        """Request the end of a transaction, when `ready`. fail: roll back. `check_discharged` reads the outcome."""
        fields = [codec.encode_binary(txn_id), b"\x41" if fail else b"\x42"]
        return self.send(VALUE + bytes(codec.encode_described(DISCHARGE, fields)))

    def refusal(self, error: LinkDetachedError) -> TransactionError:
        """Return the error for a coordinator that the peer has refused or detached."""
        container = describe_container(self.session.core)
        text = (
            f"{container} refuses the transaction coordinator: {error.description or 'no reason given'}. Transactions "
            f"need a broker that has them, and through a router a linkRoute with prefix $coordinator to that broker"
        )
        refused = TransactionError(error.condition, text)
        refused.__cause__ = error
        return refused


def describe_container(core: "ClientCore") -> str:
    """Return words for the peer: its container id, and its product if it names one."""
    properties = core.remote.get("properties") or {}
    product = " ".join(str(properties[name])[:PRODUCT_MOST] for name in ("product", "version") if properties.get(name))
    container = f"container {core.remote.get('container') or ''!r}"
    return f"{container} ({product!r})" if product else container


def read_declared(found: outcome.Outcome) -> bytes:
    """Return the txn-id of a declared transaction. Raises TransactionError."""
    if isinstance(found, outcome.Declared):
        return found.txn_id
    raise _unexpected("no transaction was declared", found)


def check_discharged(found: outcome.Outcome, fail: bool = False) -> None:
    """Check that a transaction was discharged as requested. Raises TransactionError: it was rolled back."""
    if not isinstance(found, outcome.Accepted):
        raise _unexpected("the rollback failed" if fail else "the transaction was not committed", found)


def read_transactional(found: outcome.Outcome, txn_id: bytes) -> outcome.Outcome:
    """Return the outcome that a message gets with its transaction.

    Raises TransactionError for `accepted` outside of the transaction: the receiver knows nothing of it, and has the
    message whether the transaction is committed or not.
    """
    if isinstance(found, outcome.Transactional) and found.txn_id == txn_id:
        return found.outcome or outcome.Released()
    if isinstance(found, outcome.Accepted | outcome.Transactional):
        raise TransactionError(
            "amqp:not-implemented",
            "the message was accepted outside of its transaction: its receiver takes no part in the transaction. "
            "Through a router, the address needs a linkRoute to the broker of the coordinator",
        )
    return found


def _unexpected(what: str, found: outcome.Outcome) -> TransactionError:
    if isinstance(found, outcome.Rejected):
        return TransactionError(found.condition, f"{what}: {found.description or 'no reason given'}")
    return TransactionError("", f"{what}: the coordinator answers {type(found).__name__.lower()}")
