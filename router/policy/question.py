"""Question of `sluice policy explain`, about a configuration file or, as the body of a request, to a running router."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import asdict

from sluice.router.config.entities import Configuration
from sluice.router.policy.decisions import LinkFacts
from sluice.router.policy.explain import ANONYMOUS, DYNAMIC, Finding, PolicyClient, explain
from sluice.router.policy.rules import Vhosts

MOST_NAMES: Final = 100  # addresses in one direction, or groups, of one question
_LISTS: Final = ("groups", "send", "receive")
_FLAGS: Final = ("anonymous", "dynamic")
_TEXTS: Final = ("host", "vhost")
_TEXTS_OR_NONE: Final = ("user", "listener")


class QuestionError(ValueError):
    """Error for an invalid question; its text is the reason."""


class PolicyQuestion(Struct, frozen=True):
    """Question whether a client may connect and attach some links.

    `user` is None for an unauthenticated client. `vhost` is the host name of its open; the policyVhost of `listener`,
    if it has one, takes precedence.
    """

    user: str | None = "anonymous"
    host: str = "127.0.0.1"
    vhost: str = ""
    listener: str | None = None
    groups: tuple[str, ...] = ()  # groups in the client's token
    send: tuple[str, ...] = ()
    receive: tuple[str, ...] = ()
    anonymous: bool = False
    dynamic: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the question in an unchecked map; missing fields have their defaults. Raises QuestionError."""
        for name, value in given.items():
            if not _fits(name, value):
                raise QuestionError(f"'{name}' cannot be {str(value)[:MOST_NAMES]!r}")
        values: dict[str, Any] = {
            name: tuple(map(str, given[name])) if name in _LISTS else given[name] for name in given
        }
        made = cls(**values)
        try:
            ipaddress.ip_address(made.host)
        except ValueError:
            raise QuestionError(f"'host' is not an address: {made.host[:MOST_NAMES]!r}") from None
        return made

    def as_map(self) -> dict[str, Any]:
        """Return the question as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def answer(self, configuration: Configuration, vhosts: Vhosts | None = None) -> Iterator[Finding]:
        """Return the findings of a configuration. Raises QuestionError.

        `vhosts` has the compiled rules of the configuration, if the caller has them.
        """
        client = PolicyClient(self.user, self.host, self._vhost(configuration), self.groups)
        links = [
            *(LinkFacts(consumer=False, address=address) for address in self.send),
            *(LinkFacts(consumer=True, address=address) for address in self.receive),
            *([ANONYMOUS] if self.anonymous else []),
            *([DYNAMIC] if self.dynamic else []),
        ]
        return explain(configuration, client, links, vhosts)

    def _vhost(self, configuration: Configuration) -> str:
        if self.listener is None:
            return self.vhost
        for listener in configuration.listeners:
            if listener.name == self.listener:
                return self.vhost if listener.policy_vhost is None else listener.policy_vhost
        raise QuestionError(f"there is no listener with the name '{self.listener}'")


def _fits(name: str, value: object) -> bool:
    if name in _LISTS:
        return (
            isinstance(value, list | tuple)
            and len(value) <= MOST_NAMES
            and all(isinstance(each, str) for each in value)
        )
    if name in _FLAGS:
        return isinstance(value, bool)
    if name in _TEXTS_OR_NONE and value is None:
        return True
    return isinstance(value, str) and name in (*_TEXTS, *_TEXTS_OR_NONE)
