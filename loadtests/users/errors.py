"""What goes wrong for a user, named as AMQP names it: locust counts failures by these texts."""

from __future__ import annotations

from typing import Any

from proton import Delivery


class AmqpError(Exception):
    """A refusal, a loss or an outcome other than accepted; the text is what locust shows and groups by."""


class Refused(AmqpError):
    """The peer closed a link, a session or the connection; `condition` is the error's, or None."""

    def __init__(self, what: str, condition: Any) -> None:
        """what: "link detached", ...; condition: proton's Condition or None."""
        self.condition: str | None = condition.name if condition else None
        text = f"{condition.name}: {condition.description}" if condition else "without an error"
        super().__init__(f"{what}: {text}")


class Lost(AmqpError):
    """The connection broke without a close."""


class TimedOut(AmqpError):
    """Nothing came in the time that the user waits."""


class NotAccepted(AmqpError):
    """A message got another outcome than accepted; `outcome` is its name."""

    def __init__(self, outcome: str, detail: str = "") -> None:
        self.outcome = outcome
        super().__init__(f"{outcome}: {detail}" if detail else outcome)


def outcome_of(delivery: Delivery) -> NotAccepted | None:
    """What a sender learns from a delivery that its peer settled; None: accepted."""
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
