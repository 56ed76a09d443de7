"""Check of attributes that name files or secrets. Management may set them only if the configuration file allows it.

The router accesses files with the rights of its process, so whoever may name files has access to the machine's files.
"""

from collections.abc import Mapping
from typing import Final

from sluice.router.config.entity import EntityConfig
from sluice.router.config.schema import Attribute, EntityType
from sluice.supervisor.configuration.errors import ChangeError

FORBIDDEN: Final = 403
#: Outputs of a log module that are not files.
_STREAMS: Final = ("stderr", "stdout", "syslog")
#: Forms of a password attribute that refer to a place instead of containing the password.
_PLACES: Final = ("credential:", "env:", "fd:", "file:")


def check_files(entity_type: EntityType, attributes: object, present: EntityConfig | None) -> None:
    """Refuse a management request that names a file or a secret which the entity does not name already.

    Call this before other checks: an error about a file would reveal facts about the machine. attributes: as
    requested. present: the entity before the change; None for a new entity. Raises ChangeError.
    """
    if not isinstance(attributes, Mapping):
        return
    before = {} if present is None else present.values
    for attribute in entity_type.attributes.values():
        for name in (attribute.name, attribute.old_name, attribute.alias):
            value = attributes.get(name)
            if value != before.get(attribute.name) and _names_file_or_secret(attribute, value):
                text = (
                    f"Attribute '{name}' of {entity_type.name} names a file or a secret: management may set it only "
                    "with 'allowFilesByManagement: yes' in section router of the configuration file"
                )
                raise ChangeError(FORBIDDEN, text)


def _names_file_or_secret(attribute: Attribute, value: object) -> bool:
    """True if the value of an attribute names a file or a secret."""
    if not isinstance(value, str) or not value:
        return False
    if attribute.hidden:
        return value.startswith(_PLACES)
    return attribute.names_file and value not in _STREAMS
