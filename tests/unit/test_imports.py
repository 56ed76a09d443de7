"""Import rules between packages (docs/internals/engine.md), checked by reading the sources."""

import ast
import re
from pathlib import Path

from tests.unit.source_files import ROOT, source_files

PACKAGES = ("router", "workers", "supervisor", "pipeline")
CIMPORT = re.compile(r"^(?:from\s+([\w.]+)\s+(c?import)\s+(.+?)|(c?import)\s+([\w., ]+))\s*(?:#.*)?$")
SUFFIXES = (".py", ".pyx", ".pxd")


def module_of(path: Path) -> str:
    name = ".".join(["sluice", *path.relative_to(ROOT).with_suffix("").parts])
    return name.removesuffix(".__init__")


def package_of(name: str) -> str | None:
    """Return the package of the project to which a module belongs; None for a module of others."""
    first, *rest = name.split(".")
    return rest[0] if first == "sluice" and rest else None


def statements(path: Path) -> list[tuple[str, list[str]]]:
    """Return (module, names) of each import and cimport executed when the file is loaded. Type-checking imports are
    left out."""
    text = path.read_text()
    if path.suffix == ".py":
        return [*python_imports(ast.parse(text).body)]
    found = []
    for line in re.sub(r"\(\n(.*?)\)", lambda match: " ".join(match[1].split()), text, flags=re.S).splitlines():
        match = CIMPORT.match(line)
        if match and match[1]:
            names = match[3].strip("() ,").split(",")
            found.append((match[1], [name.split(" as ")[0].strip() for name in names]))
        elif match:
            found += [(name.split(" as ")[0].strip(), []) for name in match[5].split(",")]
    return found


def python_imports(body: list[ast.stmt]):
    """Yield the imports at the top level of a module. Imports in functions run later."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from python_imports([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from python_imports([*node.body, *(one for handler in node.handlers for one in handler.body)])


def sources(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for suffix in SUFFIXES for p in (ROOT / folder).rglob(f"*{suffix}"))


MODULES = {module_of(path) for path in sources(*PACKAGES)}


def imported(path: Path) -> set[str]:
    """Return the modules of the project that are loaded with this one."""
    found = set()
    for module, names in statements(path):
        if package_of(module):
            parts = {f"{module}.{name}" for name in names} & MODULES
            found |= parts or {module}
    return found


def all_imports(path: Path) -> set[str]:
    """Return all modules that the file imports, including imports in functions and for type checking."""
    if path.suffix != ".py":
        return {module for module, _ in statements(path)}
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_reader_finds_all_kinds_of_imports(tmp_path):
    source = tmp_path / "one.pyx"
    source.write_text("from a.b cimport (\n    C, d,\n)\nfrom e import f  # why\nimport g, h as i\ncimport j\nx = 1\n")
    assert statements(source) == [("a.b", ["C", "d"]), ("e", ["f"]), ("g", []), ("h", []), ("j", [])]
    source = tmp_path / "one.py"
    source.write_text(
        "from a import b\nif TYPE_CHECKING:\n    import c\ntry:\n    import d.e\nexcept ImportError: pass\n"
    )
    assert statements(source) == [("a", ["b"]), ("d.e", [])]


def test_product_is_imported_by_installed_names():
    """In the repository `import router` works as well, but loads a second copy of each module."""
    wrong = {
        (str(path.relative_to(ROOT)), name)
        for path in source_files()
        for name in all_imports(path)
        if name.split(".")[0] in PACKAGES
    }
    assert not wrong


def test_amqp_package_imports_only_itself():
    """router/amqp imports nothing of the project outside itself."""
    paths = sources("router/amqp")
    assert len(paths) > 20
    foreign = {
        (module_of(path), name)
        for path in paths
        for name in all_imports(path)
        if package_of(name) and not name.startswith("sluice.router.amqp")
    }
    assert not foreign


def test_client_imports_only_amqp_sasl_and_records():
    foreign = {
        (module_of(path), name)
        for path in sources("router/client")
        for name in all_imports(path)
        if package_of(name) and not name.removeprefix("sluice.router.").startswith(("amqp", "client", "record", "sasl"))
    }
    assert not foreign


def test_router_and_its_processes_import_no_client():
    """Only the tools, the pipeline, users and tests import router/client."""
    wrong = {
        (module_of(path), name)
        for path in sources("router", "workers", "supervisor")
        for name in all_imports(path)
        if name.startswith("sluice.router.client")
        and not module_of(path).startswith(("sluice.router.client", "sluice.router.cli."))
    }
    assert not wrong


def test_product_imports_no_proton():
    """Proton is a library of the tests and load generators only (docs/decisions/0071-tools-without-proton.md)."""
    paths = [*sources(*PACKAGES), ROOT / "pyspark_amqp.py"]
    names = {(str(path.relative_to(ROOT)), name) for path in paths for name in all_imports(path)}
    assert "router/cli/connection.py" in {path for path, _ in names}
    assert not {(path, name) for path, name in names if name.split(".")[0] in ("proton", "cproton")}


def test_sasl_imports_only_amqp_json_codec_and_records():
    foreign = {
        (module_of(path), name)
        for path in sources("router/sasl")
        for name in all_imports(path)
        if package_of(name)
        and not name.removeprefix("sluice.router.").startswith(("amqp", "json_codec", "record", "sasl"))
    }
    assert not foreign


def test_workers_and_supervisor_share_only_router_package():
    """`router` imports neither `workers` nor `supervisor`. These two never import each other. No other package imports
    the pipeline."""
    allowed = {
        "router": {"router"},
        "workers": {"router", "workers"},
        "supervisor": {"router", "supervisor"},
        "pipeline": {"router", "pipeline"},
    }
    # Exception: `sluice run` starts the supervisor.
    verbs = {"sluice.router.cli.start"}
    wrong = {
        (module_of(path), name)
        for path in sources(*PACKAGES)
        for name in all_imports(path)
        if (package := package_of(name))
        and package not in allowed[path.relative_to(ROOT).parts[0]]
        and module_of(path) not in verbs
    }
    assert not wrong


def test_json_libraries_are_imported_by_their_codecs_only():
    """Untyped JSON passes `router/json_codec.py`, which knows the edges of orjson; typed messages are msgspec's."""
    codecs = {
        "json": {"sluice.router.json_codec"},
        "orjson": {"sluice.router.json_codec"},
        "msgspec.json": {"sluice.router.control.codec"},
    }
    found: dict[str, set[str]] = {library: set() for library in codecs}
    for path in [*sources(*PACKAGES), ROOT / "pyspark_amqp.py"]:
        names = all_imports(path) | {f"{module}.{name}" for module, named in statements(path) for name in named}
        for library in codecs:
            if any(name == library or name.startswith(f"{library}.") for name in names):
                found[library].add(module_of(path))
    assert found == codecs


def test_router_imports_no_pipeline_dependencies():
    extra = {"pyspark", "pyarrow", "pandas", "numpy", "py4j"}
    wrong = {
        (module_of(path), name)
        for path in sources("router", "workers", "supervisor")
        for name in {*all_imports(path), *(module for module, _ in statements(path))}
        if name.split(".")[0] in extra or name == "sluice.router.telemetry.parquet"
    }
    # Exception: the telemetry process writes Parquet if pyarrow is installed, and imports it at run time.
    loads = {("sluice.router.telemetry.parquet", "pyarrow"), ("sluice.router.telemetry.parquet", "pyarrow.parquet")}
    assert {module for module, name in wrong if (module, name) not in loads} <= {"sluice.supervisor.telemetry.process"}


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that import each other (strongly connected components, by Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in graph.get(node, ()):
                found.append(group)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def test_import_cycles_are_found():
    assert import_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == [["b", "c"], ["d"]]


def test_modules_have_no_import_cycles():
    graph: dict[str, set[str]] = {}
    for path in sources(*PACKAGES):
        module = module_of(path)
        # A .pyx file cimports its own .pxd, which is the same module.
        graph.setdefault(module, set()).update(imported(path) - {module})
    assert import_cycles(graph) == []
