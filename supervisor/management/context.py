"""Shared context of the agent's modules, and the interface to changes of the configuration."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from sluice.router.config.entities import Configuration
from sluice.router.config.entity import EntityConfig
from sluice.router.log import ProcessLog
from sluice.router.ring.region import Region
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.management.remote import RemoteAgents
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import Response

_Result = TypeVar("_Result")


# Change of the configuration in steps like those of an answer; returns the result.
AnswerChangeSteps = Generator["asyncio.Future[Any] | None", None, _Result]


class Changes(Protocol):
    """Interface for reading and changing configured entities. Types are short names. Changes raise ChangeError."""

    @property
    def configuration(self) -> Configuration:
        """Return the configuration in force."""

    def entities(self, entity_type: str) -> Sequence[EntityConfig]:
        """Return all entities of a type, in order of creation."""

    def find(self, name: str | None, identity: str | None) -> Sequence[EntityConfig]:
        """Return all entities with this name, otherwise with this identity."""

    def in_file(self, entity: EntityConfig) -> bool:
        """Return whether a restart with the configuration file, as it was last read, would keep an entity as it is."""

    def create(self, entity_type: str, name: str | None, attributes: object) -> AnswerChangeSteps[EntityConfig]:
        """Create an entity."""

    def update(self, entity: EntityConfig, attributes: Mapping[str, Any]) -> AnswerChangeSteps[EntityConfig]:
        """Change attributes of an entity; None removes an attribute."""

    def delete(self, entity: EntityConfig) -> AnswerChangeSteps[None]:
        """Remove an entity."""


class AgentContext(Struct, frozen=True):
    """Access of the agent to the router. Owner: the agent; immutable.

    answer(request, response): sends a further answer to a request; returns False if there is no receiver.
    later(function): calls `function` after the present answers have been sent and other events handled.
    """

    core: RouterCore
    region: Region
    log: ProcessLog
    changes: Changes
    version: str
    answer: Callable[[Request, Response], bool]
    later: Callable[[Callable[[], None]], object]
    remote_agents: RemoteAgents
