"""Files of `httpRootDir`: which of them are served, and as what (brokers-and-edge.md H-2)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sluice.supervisor.web import files
from sluice.supervisor.web.files import File, Files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "sub").mkdir(parents=True)
    (made / "index.html").write_text("top")
    (made / "sub" / "index.html").write_text("sub")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "secret").write_text("secret")
    return made


def find(root: Path, path: str, compressed: str = "") -> File | None:
    async def scenario() -> File | None:
        return await Files(asyncio.get_running_loop()).find(str(root), path, compressed)

    return asyncio.run(scenario())


@pytest.mark.parametrize(("path", "body"), [("/", b"top"), ("/index.html", b"top"), ("/sub/", b"sub")])
def test_folder_is_served_as_its_index(root: Path, path: str, body: bytes) -> None:
    found = find(root, path)
    assert found is not None
    assert (found.body, found.content_type) == (body, "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    ["", "index.html", "//index.html", "/../secret", "/sub/../index.html", "/./index.html", "/.hidden", "/sub/.hidden",
     "/..\\secret", "/a\x00b", "/index.html/", "/nothing", "/index.html/x", "/sub", "/pipe", "/loop",
     f"/{'a' * 300}", "/a" * 3000],
    ids=lambda path: path[:20],
)  # fmt: skip
def test_path_that_names_no_file_below_root_is_not_found(root: Path, path: str) -> None:
    (root / ".hidden").write_text("hidden")
    (root / "sub" / ".hidden").write_text("hidden")
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to(root / "loop")
    assert find(root, path) is None


def test_links_are_followed_only_below_root(root: Path, tmp_path: Path) -> None:
    (root / "in").symlink_to(root / "sub" / "index.html")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "beside").symlink_to(tmp_path / "root2")
    found = find(root, "/in")
    assert found is not None
    assert found.body == b"sub"
    assert find(root, "/out") is None
    assert find(root, "/beside/secret") is None, "the name of another folder may begin with that of the root"


@pytest.mark.parametrize(
    ("name", "content_type"),
    [("a.JS", "text/javascript; charset=utf-8"), ("a.json", "application/json"), ("a.exe", "application/octet-stream")],
)
def test_content_type_depends_on_suffix(root: Path, name: str, content_type: str) -> None:
    (root / name).write_text("x")
    found = find(root, f"/{name}")
    assert found is not None
    assert found.content_type == content_type


def test_compressed_copy_has_type_of_its_original(root: Path) -> None:
    (root / "a.css.gz").write_bytes(b"compressed")
    found = find(root, "/a.css", ".gz")
    assert found is not None
    assert (found.body, found.content_type) == (b"compressed", "text/css; charset=utf-8")


def test_etag_changes_with_file(root: Path) -> None:
    first = find(root, "/")
    (root / "index.html").write_text("longer")
    second, third = find(root, "/"), find(root, "/")
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.etag != second.etag == third.etag


def test_file_beyond_limit_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_OCTETS", 3)
    assert find(root, "/") is not None
    (root / "index.html").write_text("four")
    with pytest.raises(OSError, match="has 4 octets, and at most 3 are served"):
        find(root, "/")
