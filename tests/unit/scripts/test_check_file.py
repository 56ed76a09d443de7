"""Check of one file: dependent modules, tests and fuzz targets found for it."""

import shutil
from pathlib import Path

import pytest

from scripts import check_file
from tests.fuzz import targets

SETTLEMENT = Path("router", "links", "settlement.pyx")


@pytest.fixture
def copied_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root of a repository with three Cython modules and some tests."""
    monkeypatch.setattr(check_file, "ROOT", tmp_path)
    texts = {
        "router/ring.pxd": "cdef int SIZE\n",
        "router/ring.pyx": "",
        "router/port.pxd": "from sluice.router.ring cimport SIZE\n",
        "router/port.pyx": 'include "calls.pxi"\n',
        "router/calls.pxi": "",
        "workers/loop.pyx": (
            "from sluice.router cimport port  # a package\nfrom sluice.router.ring cimport (\n    SIZE,\n)\n"
        ),
        "supervisor/core.py": "",
        "tests/unit/router/test_port.py": "",
        "tests/unit/router/test_other.py": "",
        "tests/unit/supervisor/test_core_wakes.py": "from sluice.supervisor.core import Core\n",
        "tests/component/router/test_port.py": "",
        "tests/component/workers/test_all.py": "import sluice.router.port\nfrom sluice.supervisor import core\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("router/ring.pyx", ["router/port.pyx", "router/ring.pyx", "workers/loop.pyx"]),
        ("router/ring.pxd", ["router/port.pyx", "router/ring.pyx", "workers/loop.pyx"]),
        ("router/port.pyx", ["router/port.pyx", "workers/loop.pyx"]),
        ("router/calls.pxi", ["router/port.pyx"]),
        ("workers/loop.pyx", ["workers/loop.pyx"]),
    ],
)
def test_dependent_modules_follow_cimports_and_includes(copied_root: Path, name: str, modules: list[str]) -> None:
    assert [str(module) for module in check_file.CythonSources().dependents(Path(name))] == modules


def test_module_files_agree_with_cython() -> None:
    """Cython's own list names the same files of the repository; setup.py compiles a module again by that list."""
    from Cython.Build.Dependencies import create_dependency_tree

    listed = create_dependency_tree().all_dependencies(str(SETTLEMENT))
    paths = {path.resolve() for path in map(Path, listed)}
    ours = {path.relative_to(check_file.ROOT) for path in paths if path.is_relative_to(check_file.ROOT)}
    expected = {path for path in ours if path.parts[0] in check_file.COMPILED}
    assert check_file.CythonSources().files(SETTLEMENT) == expected


def test_module_older_than_its_sources_is_outdated(copied_root: Path) -> None:
    for name in ("router/ring", "router/port", "workers/loop"):
        (copied_root / f"{name}.cpython-311-x86_64-linux-gnu.so").touch()
    sources = check_file.CythonSources()
    assert sources.outdated() == []
    shutil.copystat(
        copied_root / "router" / "ring.pyx", copied_root / "router" / "port.cpython-311-x86_64-linux-gnu.so"
    )
    (copied_root / "router" / "calls.pxi").write_text("# later\n")
    assert sources.outdated() == [Path("router", "port.pyx")]


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        (
            "router/port.pyx",
            [
                "tests/component/router/test_port.py",
                "tests/component/workers/test_all.py",
                "tests/unit/router/test_port.py",
            ],
        ),
        ("router/ring.pxd", ["tests/component/router", "tests/unit/router"]),  # no test of its own: the folders
        ("supervisor/core.py", ["tests/component/workers/test_all.py", "tests/unit/supervisor/test_core_wakes.py"]),
        ("tests/unit/router/test_port.py", ["tests/unit/router/test_port.py"]),
        ("scripts/absent.py", []),
    ],
)
def test_tests_of_file_are_mirrored_and_importing_ones(copied_root: Path, name: str, tests: list[str]) -> None:
    assert [str(path) for path in check_file.tests_of(Path(name))] == tests


def test_fuzz_target_is_found_by_name_and_by_use() -> None:
    parser = "tests/fuzz/test_parsers.py::test_parser_survives_damaged_input"
    assert check_file.fuzz_tests(SETTLEMENT) == [
        "tests/fuzz/test_deliveries.py::test_delivery_conversations_match_model[settlement]"
    ]
    assert f"{parser}[performatives]" in check_file.fuzz_tests(Path("router", "amqp", "frames.pyx"))
    assert f"{parser}[proxy]" in check_file.fuzz_tests(Path("supervisor", "listeners", "proxy_header.py"))


def test_tables_of_fuzz_targets_have_tests() -> None:
    named = {name for table in check_file.FUZZ_TESTS for name in getattr(targets, table)}
    assert named == set(targets.TARGETS)
    for test in check_file.FUZZ_TESTS.values():
        path, _, function = test.partition("::")
        assert f"def {function}(" in (check_file.ROOT / path).read_text()


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("supervisor/core.py", ["ruff check supervisor/core.py", "mypy sluice/supervisor/core.py"]),
        ("router/ring.pyx", ["cython-lint router/ring.pyx", "mypy sluice/router/ring.pyi"]),
        ("router/port.pxd", ["cython-lint router/port.pxd"]),
    ],
)
def test_lint_commands_suit_kind_of_file(copied_root: Path, name: str, commands: list[str]) -> None:
    (copied_root / "router" / "ring.pyi").touch()
    assert [" ".join(command) for command in check_file.lint(Path(name))] == commands


@pytest.mark.parametrize("arguments", [[], ["README.md"], ["router/absent.pyx"], ["/etc/hostname"]])
def test_unsuitable_path_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file.main(arguments) == 2
    assert "name a Python or Cython file" in capsys.readouterr().out
