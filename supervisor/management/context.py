"""What the parts of the agent share, and the interface to changes of the configuration."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from router.config.entities import Configuration, EntityConfig
from router.interworker.region import Region
from router.log import Log
from supervisor.composition import RouterCore
from supervisor.management.request import Request
from supervisor.management.response import Response

_Result = TypeVar("_Result")


# A change of the configuration in steps, as in an answer; returns the result.
Changing = Generator["asyncio.Future[Any] | None", None, _Result]


class Changes(Protocol):
    """Reads and changes configured entities. Types by their short names. Changes raise ChangeError."""

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""

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


class Context(Struct, frozen=True):
    """The router, for the agent. Owner: the agent; immutable.

    answer(request, response): sends a further answer to a request; False when there is no receiver. later(function):
    calls it when the present answers have been sent and other events handled.
    """

    core: RouterCore
    region: Region
    log: Log
    changes: Changes
    version: str
    answer: Callable[[Request, Response], bool]
    later: Callable[[Callable[[], None]], object]
