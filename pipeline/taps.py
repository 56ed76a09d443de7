"""Taps of a router that landers use: found by name or pattern, or made for a pattern (docs/user/tap.md)."""

from typing import Any, Final

from sluice.pipeline.errors import PipelineError
from sluice.router.client import Accepted, ClientError, Message, connect

PATIENCE: Final = 20.0  # seconds for the connection, and for each answer
MANAGEMENT: Final = "$management"
TYPE: Final = "org.apache.qpid.dispatch.router.config.tap"
WILDCARDS: Final = frozenset("*#")  # tokens; a text with one of them is a pattern, and no name
SUCCESS: Final = range(200, 300)


def tap_address(url: str, client: dict[str, Any], tap: str, lander: str) -> tuple[str, str]:
    """Return the address that gets the copies of a tap, and a line that describes the tap.

    url, client: of the connection. tap: name or pattern of a tap. For a pattern without a tap, one is made in mode
    `copy`, for lander `lander`. Raises PipelineError.
    """
    try:
        with connect(url, timeout=PATIENCE, **client) as connection:
            replies = connection.receiver(None, timeout=PATIENCE)
            sender = connection.sender(MANAGEMENT, timeout=PATIENCE)

            def call(operation: str, body: dict[str, Any], **properties: str) -> Any:
                request = Message(body, reply_to=replies.address, properties={"operation": operation, **properties})
                if not isinstance(sender.send(request, timeout=PATIENCE), Accepted):
                    raise PipelineError(f"tap {tap!r}: the router does not accept requests")
                delivery = replies.receive(PATIENCE)
                delivery.accept()
                answer = delivery.message
                if int(answer.properties["statusCode"]) not in SUCCESS:
                    raise PipelineError(f"tap {tap!r}: {answer.properties['statusDescription']}")
                return answer.body

            return _address(call, tap, lander)
    except ValueError as error:
        raise PipelineError(str(error)) from error
    except (TimeoutError, ClientError) as error:
        raise PipelineError(f"tap {tap!r}: no answer from the router: {error}") from error


def _address(call: Any, tap: str, lander: str) -> tuple[str, str]:
    found = call("QUERY", {"attributeNames": ["name", "pattern", "address", "mode"]}, entityType=TYPE)
    rows = [dict(zip(found["attributeNames"], row, strict=True)) for row in found["results"]]
    for attribute in ("name", "pattern"):
        for row in rows:
            if row[attribute] == tap:
                return str(row["address"]), f"tap '{row['name']}' ({row['mode']}) copies {row['pattern']}"
    if WILDCARDS.isdisjoint(tap.replace("/", ".").split(".")):
        raise PipelineError(
            f"the router has no tap {tap!r}. Give the name of a tap of `sluice manage query --type router.config.tap`, "
            "or a pattern such as 'sensors/#', for which a tap is made"
        )
    name, address = f"lander-{lander}", f"landing/{lander}"
    call("CREATE", {"pattern": tap, "address": address}, type=TYPE, name=name)
    return address, f"made tap '{name}' (copy), which copies {tap}"
