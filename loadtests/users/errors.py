"""Errors of users, named in AMQP's terms. locust counts failures by these texts."""

from __future__ import annotations

from typing import Any

from proton import Delivery


class LocustError(Exception):
    """Base class: a refusal, a loss, or an outcome other than accepted. locust shows the text and groups by it."""


class RefusedByPeer(LocustError):
    """Raised if the peer closed a link, a session or the connection.

    `condition`: name of its error condition, or None.
    """

    def __init__(self, what: str, condition: Any) -> None:
        """Compose the text. what: for example "link detached". condition: proton's Condition or None."""
        self.condition: str | None = condition.name if condition else None
        text = f"{condition.name}: {condition.description}" if condition else "without an error"
        super().__init__(f"{what}: {text}")


class ConnectionLost(LocustError):
    """Raised if the connection broke without a close."""


class TimedOut(LocustError):
    """Raised if nothing arrived within the user's time limit."""


class NotAccepted(LocustError):
    """Error for an outcome other than accepted; `outcome` is its name."""

    def __init__(self, outcome: str, detail: str = "") -> None:
        self.outcome = outcome
        super().__init__(f"{outcome}: {detail}" if detail else outcome)


def outcome_of(delivery: Delivery) -> NotAccepted | None:
    """Return the error for a delivery that the peer settled. None: accepted."""
    state = delivery.remote_state
    if state == Delivery.ACCEPTED:
        return None
    if state == Delivery.REJECTED:
        condition = delivery.remote.condition
        return NotAccepted("rejected", f"{condition.name}: {condition.description}" if condition else "")
    if state == Delivery.RELEASED:
        return NotAccepted("released")
    if state == Delivery.MODIFIED:
        flags = [name for name in ("failed", "undeliverable") if getattr(delivery.remote, name)]
        return NotAccepted("modified", ", ".join(flags))
    return NotAccepted("settled without an outcome")
