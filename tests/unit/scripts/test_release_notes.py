"""Notes of a release."""

from scripts.release_notes import notes, with_absolute_links

CHANGELOG = """# Changelog

## Unreleased

### Added

- Next.

## [0.2.0] - 2026-12-01

### Added

- Second.

## 0.1.0

"""


def test_notes_of_version_are_its_section_only() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- Second."


def test_notes_of_missing_or_empty_version_are_refused() -> None:
    assert notes(CHANGELOG, "0.3.0") is None
    assert notes(CHANGELOG, "0.1.0") is None


def test_links_of_notes_are_absolute() -> None:
    text = "[taps](docs/user/tap.md#cost), [format](https://keepachangelog.com/)"
    changed = with_absolute_links(text)
    assert changed.startswith("[taps](https://")
    assert "/docs/user/tap.md#cost), [format](https://keepachangelog.com/)" in changed
