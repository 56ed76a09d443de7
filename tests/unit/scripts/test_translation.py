"""Translation of Cython modules in processes that share headers: order, errors, and C files that are kept."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from scripts import check_file, translation
from scripts.check_file import CythonSources
from scripts.translation import HeaderGroup, TranslationError, Translator, divide, group_by_headers, headers_of

pytestmark = pytest.mark.starts

DIRECTIVES = {"language_level": 3, "emit_code_comments": False}
A, B, C = (Path("router", f"{name}.pxd") for name in "abc")
TEXTS = {
    "router/__init__.py": "",
    "router/a.pxd": "cdef inline int first() noexcept:\n    return 1\n",
    "router/b.pxd": "from sluice.router.a cimport first\ncdef struct Second:\n    int number\n",
    "router/b.pyx": "cdef int second(Second* it) noexcept:\n    return it.number + first()\n",
    "router/c.pxd": "cdef inline int third() noexcept:\n    return 3\n",
    "router/both.pyx": "from sluice.router.b cimport Second\nfrom sluice.router.c cimport third\nx = third()\n",
    "router/none.pyx": "x = 1\n",
    "router/only_c.pyx": "from sluice.router.c cimport third\nx = third()\n",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root of a repository with four modules, which cimport three headers."""
    root = tmp_path / "repository"
    (root / "sluice").mkdir(parents=True)
    (root / "sluice" / "__init__.py").touch()
    (root / "sluice" / "router").symlink_to("../router")
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    for module in (check_file, translation):
        monkeypatch.setattr(module, "ROOT", root)
    return root


def start(
    folder: Path, stems: Iterable[str] = ("b", "both", "none", "only_c"), inputs: list[Path] | None = None
) -> Translator:
    """Start the translation of modules of the repository into a folder."""
    modules = {Path("router", f"{stem}.pyx"): f"sluice.router.{stem}" for stem in stems}
    return Translator(modules, folder, DIRECTIVES, inputs or [], 2)


def c_files(folder: Path) -> dict[str, str]:
    """Return the text of each complete C file in a folder, by the stem of its module."""
    return {path.stem: path.read_text() for path in folder.joinpath("router").glob("*.c")}


def test_headers_of_most_modules_come_first(repository: Path) -> None:
    headers = headers_of(CythonSources())
    assert headers[Path("router", "both.pyx")] == [A, B, C]  # two modules each: by name


def test_groups_share_first_headers() -> None:
    modules = {Path("one.pyx"): [A, B], Path("two.pyx"): [A, B, C], Path("three.pyx"): [A, C]}
    assert group_by_headers(modules) == HeaderGroup(
        [A],
        [],
        [
            HeaderGroup([B], [Path("one.pyx")], [HeaderGroup([C], [Path("two.pyx")], [])]),
            HeaderGroup([C], [Path("three.pyx")], []),
        ],
    )


def test_divided_modules_are_each_in_one_group(repository: Path) -> None:
    modules = headers_of(CythonSources())
    for count in (1, 2, 3, 16):
        groups = divide(modules, count)
        assert len(groups) <= count
        assert sorted(module for group in groups for module in group.all_modules()) == sorted(modules)
    assert divide({}, 2) == []


def test_c_files_have_what_cython_writes_for_each_module_alone(repository: Path, tmp_path: Path) -> None:
    assert sorted(module.stem for module in start(tmp_path / "c")) == ["b", "both", "none", "only_c"]
    cython: Any = importlib.import_module("Cython.Compiler.Main")
    for stem, text in c_files(tmp_path / "c").items():
        alone = tmp_path / "alone" / f"{stem}.c"
        alone.parent.mkdir(exist_ok=True)
        options = cython.CompilationOptions(
            cython.default_options,
            compiler_directives=DIRECTIVES,
            include_path=[str(repository)],
            output_file=str(alone),
        )
        cython.compile_single(str(repository / "sluice" / "router" / f"{stem}.pyx"), options, f"sluice.router.{stem}")
        # The order of declarations follows the order in which the headers are read.
        assert sorted(text.splitlines()) == sorted(alone.read_text().splitlines())


def test_c_file_is_the_same_with_fewer_modules(repository: Path, tmp_path: Path) -> None:
    list(start(tmp_path / "all"))
    list(start(tmp_path / "one", ["both"]))
    assert c_files(tmp_path / "one") == {"both": c_files(tmp_path / "all")["both"]}


def test_changed_header_translates_its_modules_again(repository: Path, tmp_path: Path) -> None:
    list(start(tmp_path / "c"))
    times = {path: path.stat().st_mtime_ns for path in tmp_path.joinpath("c", "router").glob("*.c")}
    assert sorted(module.stem for module in start(tmp_path / "c")) == ["b", "both", "none", "only_c"]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    (repository / "router" / "a.pxd").write_text(TEXTS["router/a.pxd"].replace("1", "7"))
    list(start(tmp_path / "c"))
    assert {path.stem for path in times if path.stat().st_mtime_ns != times[path]} == {"b", "both"}


def test_changed_input_of_all_modules_removes_c_files(repository: Path, tmp_path: Path) -> None:
    list(start(tmp_path / "c"))
    directives = tmp_path / "directives"
    directives.touch()
    list(start(tmp_path / "c", ["none"], [directives]))
    assert set(c_files(tmp_path / "c")) == {"none"}


@pytest.mark.parametrize(
    ("file", "text", "bad"),
    [
        ("router/none.pyx", "x = = 1\n", "router/none.pyx"),
        ("router/c.pxd", "cdef nothing third(\n", "router/c.pxd"),
        ("router/c.pxd", "cdef inline int fourth() noexcept:\n    return 4\n", "router/"),
    ],
)
def test_error_names_the_file_and_leaves_no_c_file(
    repository: Path, tmp_path: Path, file: str, text: str, bad: str
) -> None:
    (repository / file).write_text(text)
    with pytest.raises(TranslationError) as error:
        list(start(tmp_path / "c"))
    assert str(error.value).startswith(bad)
    assert not set(c_files(tmp_path / "c")) & ({"none"} if "none" in file else {"both", "only_c"})
