"""Orders of the supervisor about one connection."""

from sluice.router.control import login_messages
from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.workers.connections.handler import ConnectionHandler
from sluice.workers.connections.opening import apply_admission


def register(handlers: HandlerTable[ConnectionHandler]) -> None:
    """Register the handlers of orders about connections."""
    handlers.on(login_messages.SaslOffer, ConnectionHandler.answer_sasl)
    handlers.on(login_messages.SaslChallenge, ConnectionHandler.answer_sasl)
    handlers.on(login_messages.SaslOutcome, ConnectionHandler.answer_sasl)
    handlers.on(control.Admitted, apply_admission)
    handlers.on(control.Denied, apply_admission)
    handlers.on(control.Permit, ConnectionHandler.permit)
    handlers.on(control.Attached, _answer)
    handlers.on(control.Refused, _answer)
    handlers.on(control.Decided, _answer)
    handlers.on(control.Postponed, _answer)
    handlers.on(control.Detached, lambda client, order: client.links.confirm_detach(order))
    handlers.on(control.Link, lambda client, order: client.links.initiate(client, order))
    handlers.on(control.Unlink, lambda client, order: client.links.unlink(client, order))
    handlers.on(control.CloseLink, lambda client, order: client.links.close_link(order))
    handlers.on(control.Close, ConnectionHandler.close)
    handlers.on(control.WithdrawCredit, lambda client, order: client.links.withdraw_credit(order.link))
    handlers.on(control.Gone, lambda client, _: client.connection.answer_close())


def _answer(client: ConnectionHandler, order: control.Answer) -> None:
    client.links.answer(order)
