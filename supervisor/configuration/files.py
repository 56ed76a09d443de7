"""Attributes that name files or secrets, which management sets only where the configuration file allows it.

The router reads and writes files with the rights of its process: who may name them has the machine's files.
"""

from collections.abc import Mapping
from typing import Final

from router.config.entities import EntityConfig
from router.config.schema import Attribute, EntityType
from supervisor.configuration.errors import ChangeError

FORBIDDEN: Final = 403
#: Outputs of a log module that are no files.
_STREAMS: Final = ("stderr", "stdout", "syslog")
#: Forms of a password that say where it is.
_PLACES: Final = ("credential:", "env:", "fd:", "file:")


def check_files(entity_type: EntityType, attributes: object, present: EntityConfig | None) -> None:
    """Raise ChangeError where a request of management names a file or a secret that the entity does not name.

    Before anything else is looked at: what is wrong with a name of a file says something about the machine.
    attributes: as requested. present: the entity as it is; None for a new one.
    """
    if not isinstance(attributes, Mapping):
        return
    before = {} if present is None else present.values
    for attribute in entity_type.attributes.values():
        for name in (attribute.name, attribute.old_name, attribute.alias):
            value = attributes.get(name)
            if value != before.get(attribute.name) and _names(attribute, value):
                text = (
                    f"Attribute '{name}' of {entity_type.name} names a file or a secret: management may set it only "
                    "with 'allowFilesByManagement: yes' in section router of the configuration file"
                )
                raise ChangeError(FORBIDDEN, text)


def _names(attribute: Attribute, value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    if attribute.hidden:
        return value.startswith(_PLACES)
    return attribute.names_file and value not in _STREAMS
