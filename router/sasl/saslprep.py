"""SASLprep (RFC 4013): user names and passwords in the form in which they are compared."""

import stringprep
import unicodedata
from typing import Final

# RFC 4013, 2.3: tables of RFC 3454 that nothing may be from; C.1.2 is mapped to a blank before.
_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class PrepareError(ValueError):
    """A text that SASLprep refuses. The error does not hold it: it may be a password."""


def prepare(text: str, *, query: bool = True) -> str:
    """The text after SASLprep. query: it is compared with what is stored, so that it may have characters that Unicode
    had not assigned when the tables were made; what is to be stored may not. Raises PrepareError."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    # The tables are those of Unicode 3.2, and so is the normal form.
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if any(table(each) for table in _PROHIBITED):
            raise PrepareError("a character is prohibited")
        if not query and stringprep.in_table_a1(each):
            raise PrepareError("a character is not assigned")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """RFC 3454, 6: what has characters from right to left has no others, and begins and ends with one."""
    if not any(stringprep.in_table_d1(each) for each in text):
        return
    if any(stringprep.in_table_d2(each) for each in text):
        raise PrepareError("characters of both directions")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise PrepareError("it must begin and end with a character from right to left")
