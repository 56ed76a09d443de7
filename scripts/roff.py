"""Text of man pages: paragraphs, tagged lists and examples in the macros of man(7)."""

import re
from collections.abc import Iterable

_CODE = re.compile(r"`([^`]*)`")
_STRONG = re.compile(r"\*\*([^*]+)\*\*")
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")


class Roff:
    """Man page under construction."""

    def __init__(self, title: str, section: int, date: str, version: str) -> None:
        # Without hyphens in words: names of commands and attributes stay whole, so a search finds them.
        self._lines = [f'.TH {title.upper()} {section} {date} "Sluice {version}" "Sluice Manual"', ".nh", ".ad l"]

    @property
    def text(self) -> str:
        """Source of the page."""
        return "\n".join([*self._lines, ""])

    def name(self, names: str, summary: str) -> None:
        """Add the section NAME, in the form that whatis(1) and apropos(1) read."""
        self.section("NAME")
        self._lines.append(f"{escaped(names)} \\- {markdown(summary)}")

    def section(self, title: str) -> None:
        """Begin a section."""
        self._lines.append(f".SH {escaped(title)}")

    def subsection(self, title: str) -> None:
        """Begin a subsection."""
        self._lines.append(f".SS {escaped(title)}")

    def paragraph(self, text: str) -> None:
        """Add a paragraph of Markdown, filled to the width of the terminal. The first one of a section needs no gap."""
        if not self._lines[-1].startswith((".SH", ".SS")):
            self._lines.append(".PP")
        self._lines.append(markdown(text))

    def item(self, tag: str, text: str) -> None:
        """Add an item of a list; `tag` is shown in bold."""
        self._lines += [".TP", f"\\fB{escaped(tag)}\\fR", markdown(text)]

    def example(self, lines: Iterable[str]) -> None:
        """Add lines that are shown as they are."""
        self._lines += [".PP", ".RS 4", ".nf", *(escaped(line) for line in lines), ".fi", ".RE"]

    def verbatim(self, text: str) -> None:
        """Add one line in bold, for a synopsis."""
        self._lines.append(f"\\fB{escaped(text)}\\fR")


def escaped(text: str) -> str:
    """Return text that groff prints unchanged, in ASCII."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in text)
    return text.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")


def markdown(text: str) -> str:
    """Return a paragraph of Markdown as roff: code and strong text in bold, links as their text."""
    text = _LINK.sub(r"\1", " ".join(text.split()))
    text = _STRONG.sub(r"`\1`", text)
    parts = _CODE.split(text)
    text = "".join(f"\\fB{escaped(part)}\\fR" if index % 2 else escaped(part) for index, part in enumerate(parts))
    return text if not text.startswith(".") else f"\\&{text}"
