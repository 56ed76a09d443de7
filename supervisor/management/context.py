"""What the agent's parts work with, and the interface to changes of the configuration."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from router.config.entities import AutoLinkConfig, Configuration, ConnectorConfig, EntityConfig
from router.ipc.layout import Region
from router.log import Log
from supervisor.autolinks import Shown as AutoLinkShown
from supervisor.core import Core
from supervisor.management.request import Request
from supervisor.management.response import Response

_Result = TypeVar("_Result")


class Shown(Protocol):
    """Where live attributes of configured entities come from."""

    def shown(self, config: ConnectorConfig) -> Mapping[str, Any]:
        """Those of a connector."""


class AutoLinkStates(Protocol):
    """Where the states of auto links come from."""

    def shown(self, config: AutoLinkConfig) -> AutoLinkShown:
        """That of one."""


# A change of the configuration in steps, each as in an answer; at last what came of it.
Changing = Generator["asyncio.Future[Any] | None", None, _Result]


class Changes(Protocol):
    """Where configured entities are read and changed. Types by their short names. Changes raise ChangeError."""

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""

    @property
    def connectors(self) -> Shown:
        """What connectors show besides."""

    @property
    def autolinks(self) -> AutoLinkStates:
        """What auto links show besides."""

    def entities(self, entity_type: str) -> Sequence[EntityConfig]:
        """All entities of a type, in order of creation."""

    def find(self, name: str | None, identity: str | None) -> Sequence[EntityConfig]:
        """All entities of this name, else of this identity."""

    def create(self, entity_type: str, name: str | None, attributes: object) -> Changing[EntityConfig]:
        """Make an entity."""

    def update(self, entity: EntityConfig, attributes: Mapping[str, Any]) -> Changing[EntityConfig]:
        """Change attributes of an entity; None removes one."""

    def delete(self, entity: EntityConfig) -> Changing[None]:
        """Remove an entity."""


@dataclass(frozen=True, slots=True)
class Context:
    """The router as the agent sees it. Owner: the agent; immutable.

    answer(request, response): sends a further answer to a request; False when nobody is there to get it.
    later(function): calls it when the answers made so far are on their way and other events have had their turn.
    """

    core: Core
    region: Region
    log: Log
    changes: Changes
    version: str
    answer: Callable[[Request, Response], bool]
    later: Callable[[Callable[[], None]], object]
