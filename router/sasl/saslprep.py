"""SASLprep (RFC 4013): normalisation of user names and passwords for comparison."""

import stringprep
import unicodedata
from typing import Final

# Tables of prohibited characters (RFC 4013, 2.3; tables of RFC 3454). Those of C.1.2 are mapped to blanks before.
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
    """Error for a text that SASLprep refuses. It does not contain the text, which may be a password."""


def prepare(text: str, *, query: bool = True) -> str:
    """Return the text after SASLprep. Raises PrepareError.

    `query`: the text is only compared with stored texts, so it may contain characters that are unassigned in Unicode
    3.2, the version of the tables. A text to be stored may not.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    # The normal form is that of Unicode 3.2, like the tables.
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if any(table(each) for table in _PROHIBITED):
            raise PrepareError("it has a character that SASLprep (RFC 4013) prohibits")
        if not query and stringprep.in_table_a1(each):
            raise PrepareError("it has a character that is not assigned in Unicode 3.2")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """Check the rule for bidirectional text (RFC 3454, 6). Raises PrepareError.

    A text with right-to-left characters has no left-to-right ones, and begins and ends with a right-to-left one.
    """
    if not any(stringprep.in_table_d1(each) for each in text):
        return
    if any(stringprep.in_table_d2(each) for each in text):
        raise PrepareError("it has characters of both writing directions")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise PrepareError("a text written from right to left must begin and end with a right-to-left character")
