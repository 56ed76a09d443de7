"""Attributes that name files or secrets, which management sets only where the configuration file allows it.

The router reads and writes files with the rights of its process: who may name them has the machine's files.
"""

from typing import Final

from router.config.entities import EntityConfig
from router.config.jsontext import JsonValue
from router.config.schema import Attribute
from supervisor.configuration.errors import ChangeError

FORBIDDEN: Final = 403
#: Outputs of a log module that are no files.
_STREAMS: Final = ("stderr", "stdout", "syslog")
#: Forms of a password that say where it is.
_PLACES: Final = ("credential:", "env:", "fd:", "file:")


def check_files(entity: EntityConfig, present: EntityConfig | None) -> None:
    """Raise ChangeError where an entity, as management wants it, names a file or a secret that it did not name.

    present: the entity as it is; None for a new one.
    """
    before = {} if present is None else present.values
    for name, value in entity.values.items():
        attribute = entity.entity_type.attributes.get(name)
        if attribute is not None and value != before.get(name) and _names(attribute, value):
            text = (
                f"Attribute '{name}' of {entity.type} names a file or a secret: management may set it only with "
                "'allowFilesByManagement: yes' in section router of the configuration file"
            )
            raise ChangeError(FORBIDDEN, text)


def _names(attribute: Attribute, value: JsonValue) -> bool:
    if not isinstance(value, str) or not value:
        return False
    if attribute.hidden:
        return value.startswith(_PLACES)
    return attribute.names_file and value not in _STREAMS
