"""Agreement of each stub (.pyi) with its compiled module: names, parameters, and attributes that can be set.

mypy reports a compiled module without a stub if Python code imports it. Types are not compared, because most of them
are only in the stub.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Final

import pytest

from tests.unit.source_files import ROOT, source_files

PACKAGES: Final = ("router", "workers", "supervisor", "pipeline")
#: Base classes of stub classes that exist for type checkers only.
TYPE_ONLY: Final = frozenset(("NamedTuple", "Protocol", "TypedDict"))
STUBS: Final = {
    ".".join(["sluice", *path.relative_to(ROOT).with_suffix("").parts]): path
    for path in source_files(*PACKAGES)
    if path.suffix == ".pyi"
}
_FIELD: Final = re.compile(r"^(?:cdef |cpdef )?class (\w+)|^    cdef (public|readonly) ([^#\n]+)", re.MULTILINE)

_CONSTRUCTOR: Final = re.compile(r"^(?:cdef )?class (\w+)|^    def __c?init__\((.*?)\):", re.MULTILINE | re.DOTALL)

# Name, kind and existence of a default of each parameter.
Parameters = list[tuple[str, "inspect._ParameterKind", bool]]
PLAIN: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
BY_NAME: Final = inspect.Parameter.KEYWORD_ONLY


@cache
def source(module: str) -> str:
    """Return the text of a compiled module with its declarations, without comments."""
    files = (STUBS[module].with_suffix(suffix) for suffix in (".pxd", ".pyx"))
    return "\n".join(re.sub(r"#[^\n]*", "", file.read_text()) for file in files if file.exists())


@cache
def compiled(module: str) -> ModuleType:
    """Return a compiled module."""
    return importlib.import_module(module)


@cache
def stub(module: str) -> ast.Module:
    """Return the parsed stub of a module."""
    return ast.parse(STUBS[module].read_text())


def defined_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a stub defines."""
    match statement:
        case ast.ClassDef() | ast.FunctionDef():
            yield statement.name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def exists_for_types_only(statement: ast.stmt) -> bool:
    """Return True for imports, type aliases, and classes that exist only for type checkers."""
    if isinstance(statement, ast.ClassDef):
        return any(isinstance(base, ast.Name) and base.id in TYPE_ONLY for base in statement.bases)
    return isinstance(statement, ast.Assign | ast.Import | ast.ImportFrom | ast.Expr)


def public_names(module: str) -> set[str]:
    """Return the public names that a compiled module itself defines."""
    found = set()
    for name, value in vars(compiled(module)).items():
        if name.startswith("_") or isinstance(value, ModuleType):
            continue
        owner = getattr(value, "__module__", None)
        assigned = owner is None and re.search(rf"^{name}\b[^\n=]*=", source(module), re.MULTILINE)
        if owner == module or assigned:
            found.add(name)
    return found


def stub_class(module: str, name: str) -> tuple[str, ast.ClassDef] | None:
    """Return the class in a stub and the module of that stub; None: no stub defines the class."""
    for statement in stub(module).body:
        match statement:
            case ast.ClassDef(name=found) if found == name:
                return module, statement
            case ast.ImportFrom(module=str(other), names=names) if other in STUBS:
                if any(each.name == name for each in names):
                    return stub_class(other, name)
    return None


def stub_classes(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield a class of a stub and those of its base classes that are in stubs, with their modules."""
    yield module, node
    for base in node.bases:
        found = stub_class(module, base.id) if isinstance(base, ast.Name) else None
        if found is not None:
            yield from stub_classes(*found)


def members(node: ast.ClassDef) -> dict[str, ast.stmt]:
    """Return the members of a class of a stub by name."""
    return {name: statement for statement in node.body for name in defined_names(statement)}


def is_property(statement: ast.stmt) -> bool:
    """Return True for a property."""
    decorators = statement.decorator_list if isinstance(statement, ast.FunctionDef) else []
    return any(isinstance(each, ast.Name) and each.id == "property" for each in decorators)


def stub_parameters(node: ast.FunctionDef, *, method: bool) -> Parameters:
    """Return the parameters of a function of a stub. method: leave out the first parameter."""
    arguments = node.args
    plain = arguments.posonlyargs + arguments.args
    defaults = [False] * (len(plain) - len(arguments.defaults)) + [True] * len(arguments.defaults)
    found: Parameters = []
    found += [(each.arg, PLAIN, default) for each, default in zip(plain, defaults, strict=True)][method:]
    if arguments.vararg:
        found.append((arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL, False))
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append((each.arg, BY_NAME, value is not None))
    if arguments.kwarg:
        found.append((arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD, False))
    return found


def compiled_parameters(function: object) -> Parameters | None:
    """Return the parameters of a compiled function; None: it has no signature at run time."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return [
        (each.name, each.kind, each.default is not inspect.Parameter.empty) for each in signature.parameters.values()
    ]


def constructor_parameters(module: str, name: str) -> tuple[Parameters, bool] | None:
    """Return the parameters of a constructor, and True if it also has `*args` or `**kwargs`; None: no constructor."""
    owner = ""
    for each in _CONSTRUCTOR.finditer(source(module)):
        if each[1]:
            owner = each[1]
        elif owner == name:
            texts = [text.strip() for text in each[2].split(",")][1:]
            found: Parameters = []
            kind: inspect._ParameterKind = PLAIN
            for text in texts:
                declared, _, default = text.partition("=")
                if text.startswith("*"):
                    kind = BY_NAME
                else:
                    declared = declared.partition(":")[0].removesuffix(" not None")
                    found.append((re.findall(r"\w+", declared)[-1], kind, default != ""))
            return found, any(re.match(r"\*+\w", text) for text in texts)
    return None


def settable_fields(module: str) -> dict[tuple[str, str], bool]:
    """Return the Python-visible fields of compiled classes by (class, name), with True for those that can be set."""
    found = {}
    owner = ""
    for each in _FIELD.finditer(source(module)):
        if each[1]:
            owner = each[1]
        else:
            for name in each[3].split(","):
                found[owner, re.findall(r"\w+", name)[-1]] = each[2] == "public"
    return found


def class_differences(module: str, node: ast.ClassDef) -> Iterator[str]:
    """Yield the differences between a class of a stub and the compiled class."""
    real = getattr(compiled(module), node.name)
    known = {name for _, each in stub_classes(module, node) for name in members(each)}
    public = {
        name for each in real.__mro__ if each.__module__ in STUBS for name in vars(each) if not name.startswith("_")
    }
    yield from (f"{node.name}.{name} is missing in the stub" for name in sorted(public - known))
    settable = settable_fields(module)
    for name, statement in members(node).items():
        place = f"{node.name}.{name}"
        if name == "__init__":
            continue
        if not hasattr(real, name):
            if not re.search(rf"\bself\.{name} = ", source(module)):
                yield f"{place} is only in the stub"
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            if getattr(real, name) != statement.value.value:
                yield f"{place} has another value"
        elif isinstance(statement, ast.FunctionDef) and not is_property(statement):
            yield from parameter_differences(place, statement, getattr(real, name), method=not _is_static(statement))
        elif (node.name, name) in settable and settable[node.name, name] == is_property(statement):
            yield f"{place} can be set in only one of both"
    yield from constructor_differences(module, node)


def _is_static(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def parameter_differences(place: str, node: ast.FunctionDef, real: object, *, method: bool) -> Iterator[str]:
    """Yield the difference between the parameters of a function of a stub and those of the compiled function."""
    found = compiled_parameters(real)
    if found is None:
        return
    if method and found and found[0][0] == "self":
        found = found[1:]
    written = stub_parameters(node, method=method)
    if not node.name.startswith("__") and found != written:
        yield f"{place} has other parameters in the stub: {written} instead of {found}"


def constructor_differences(module: str, node: ast.ClassDef) -> Iterator[str]:
    """Yield the difference between the constructor of a class of a stub and that of the source."""
    real = constructor_parameters(module, node.name)
    if real is None or (not real[0] and not isinstance(members(node).get("__init__"), ast.FunctionDef)):
        return
    for _, each in stub_classes(module, node):
        found = members(each).get("__init__")
        if isinstance(found, ast.FunctionDef):
            written = stub_parameters(found, method=True)
            if written != real[0] and not (real[1] and written[: len(real[0])] == real[0]):
                yield f"the constructor of {node.name} has other parameters in the stub: {written} instead of {real[0]}"
            return
    if not real[1]:
        yield f"{node.name} has no constructor in the stub"


@pytest.mark.parametrize("module", STUBS)
def test_stub_and_compiled_module_agree(module: str) -> None:
    found = []
    names = set()
    for statement in stub(module).body:
        if exists_for_types_only(statement):
            continue
        for name in defined_names(statement):
            names.add(name)
            if not hasattr(compiled(module), name):
                found.append(f"{name} is only in the stub")
            elif isinstance(statement, ast.ClassDef):
                found += class_differences(module, statement)
            elif isinstance(statement, ast.FunctionDef):
                found += parameter_differences(name, statement, getattr(compiled(module), name), method=False)
    found += [f"{name} is missing in the stub" for name in sorted(public_names(module) - names)]
    assert not found, "\n".join(found)


def test_stubs_without_compiled_module_do_not_exist() -> None:
    assert [str(path) for path in STUBS.values() if not path.with_suffix(".pyx").exists()] == []
