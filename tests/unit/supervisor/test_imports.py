"""Import directions within the supervisor: no modules import each other."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Import cycles that are allowed to stay, of imports for types or inside functions: sets of modules. A cycle shows that
# two files hold one concept, or that an interface is missing.
KNOWN_CYCLES: set[frozenset[str]] = set()

Graph = Mapping[str, set[str]]

#: Import or cimport of names at the top of a compiled module.
_COMPILED_IMPORT = re.compile(r"^from (\S+) c?import (\([^)]*\)|.+)$", re.MULTILINE)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imports(node: ast.AST, *, everywhere: bool) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import. Unless `everywhere`, leave out imports for types and inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom):
            assert child.module is not None, "relative imports are not used here"
            yield from ((child.module, alias.name) for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from ((alias.name, "") for alias in child.names)
        elif everywhere or not (_is_for_types(child) or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from _imports(child, everywhere=everywhere)


def _compiled_imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of a compiled module."""
    for module, names in _COMPILED_IMPORT.findall(text):
        yield from ((module, name.split()[0]) for name in names.strip("()").split(",") if name.strip())


def _graph(root: Path, package: str, *, everywhere: bool) -> Graph:
    """Return the modules of the package that each of its modules imports. root: the folder that imports search."""
    paths = {}
    for path in root.joinpath(*package.split(".")).rglob("*.py*"):
        if path.suffix not in (".py", ".pyx"):
            continue
        parts = path.relative_to(root).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        text = path.read_text("utf-8")
        named = _compiled_imports(text) if path.suffix == ".pyx" else _imports(ast.parse(text), everywhere=everywhere)
        found = {f"{source}.{name}" if f"{source}.{name}" in paths else source for source, name in named}
        graph[module] = (found & paths.keys()) - {module}
    return graph


def _reached(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - reached:
            reached.add(module)
            waiting.append(module)
    return reached


def import_cycles(graph: Graph) -> set[frozenset[str]]:
    """Return the sets of modules that reach each other."""
    reached = {module: _reached(graph, module) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }


def test_supervisor_modules_have_no_import_cycles() -> None:
    assert import_cycles(_graph(ROOT, "sluice.supervisor", everywhere=False)) == set()


def test_supervisor_modules_have_only_known_type_cycles() -> None:
    assert import_cycles(_graph(ROOT, "sluice.supervisor", everywhere=True)) == KNOWN_CYCLES


def test_supervisor_core_imports_no_subsystem() -> None:
    imported = _graph(ROOT, "sluice.supervisor", everywhere=True)["sluice.supervisor.core"]
    assert imported == {
        "sluice.supervisor.subsystem",
        "sluice.supervisor.journal.journal",
        "sluice.supervisor.journal.snapshots",
        "sluice.supervisor.children.worker",
        "sluice.supervisor.runtime.waker",
    }


@pytest.mark.parametrize(
    ("first", "at_load", "anywhere"),
    [
        ("from p.b import B", True, True),
        ("from p import b", True, True),
        ("import p.b", True, True),
        ("if TYPE_CHECKING:\n    from p.b import B", False, True),
        ("def f():\n    from p.b import B", False, True),
        ("from other import b", False, False),
    ],
)
def test_supervisor_import_cycles_are_found(tmp_path: Path, first: str, at_load: bool, anywhere: bool) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text(first)
    (folder / "b.py").write_text("from p.a import A")
    both = {frozenset({"p.a", "p.b"})}
    assert import_cycles(_graph(tmp_path, "p", everywhere=False)) == (both if at_load else set())
    assert import_cycles(_graph(tmp_path, "p", everywhere=True)) == (both if anywhere else set())
