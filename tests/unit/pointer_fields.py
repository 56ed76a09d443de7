"""Parser that finds untyped pointer fields (`void*` and `PyObject*`) of structs and extension types."""

import re
from collections.abc import Iterator

OWNER = re.compile(r"^\s*(?:ctypedef\s+|cdef\s+)*(?:public\s+|packed\s+)*(?:struct|union|class)\s+(\w+)")
FIELD = re.compile(
    r"^\s+(?:cdef\s+)?(?:readonly\s+|public\s+)?(?:const\s+)?(?:void|PyObject)\s*\*+\s*(?:\[[^]]*\]\s*)?(\w+)"
    r"(?:\[[^]]*\])?\s*(?:=.*)?(?:#.*)?$"
)


def pointer_fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield (struct or type, field) for each such field of a .pxd or .pyx file. Local variables are not fields."""
    owner, depth = "", 0
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if indent <= depth:
            owner = ""
        found = OWNER.match(line)
        if found is not None:
            owner, depth = found[1], indent
        elif owner and indent == depth + 4:
            field = FIELD.match(line)
            if field is not None:
                yield owner, field[1]
