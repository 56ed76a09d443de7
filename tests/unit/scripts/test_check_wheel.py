"""Check of a wheel by its use: small wheels of Python modules, installed into an environment of their own."""

import zipfile
from pathlib import Path

import pytest

from scripts.check_wheel import is_for_this_interpreter, wrong_use

pytestmark = pytest.mark.starts

METADATA = "Metadata-Version: 2.1\nName: probe\nVersion: 1\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n"


def make_wheel(folder: Path, files: dict[str, str]) -> Path:
    """Return a wheel with these files and a command `probe`."""
    wheel = folder / "probe-1-py3-none-any.whl"
    information = {
        "METADATA": METADATA,
        "WHEEL": TAGS,
        "RECORD": "",
        "entry_points.txt": "[console_scripts]\nprobe = probe:main\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (files | {f"probe-1.dist-info/{name}": text for name, text in information.items()}).items():
            archive.writestr(name, text)
    return wheel


def test_wheel_that_works_has_no_faults(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"probe.py": "import aiohttp\ndef main(): pass\n"})
    assert list(wrong_use(wheel, ["probe"], tmp_path / "environment")) == []


def test_broken_module_and_command_are_faults(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"probe.py": "import missing_library\n"})
    [module, command] = wrong_use(wheel, ["probe"], tmp_path / "environment")
    assert module == "probe cannot be imported: ModuleNotFoundError: No module named 'missing_library'"
    assert command.startswith("probe --version failed: ")


def test_crash_of_a_module_is_a_fault(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"probe.py": "def main(): pass\n", "crash.py": "import os\nos.abort()\n"})
    assert list(wrong_use(wheel, ["probe", "crash"], tmp_path / "environment")) == [
        "importing its modules ended Python with status -6"
    ]


def test_module_of_the_checkout_is_a_fault(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"probe.py": "def main(): pass\n"})
    [fault] = wrong_use(wheel, ["probe", "sluice.workers.loop"], tmp_path / "environment")
    assert fault.startswith("sluice.workers.loop cannot be imported: ModuleNotFoundError")


@pytest.mark.parametrize(
    ("tag", "fits"), [("py3-none-any", True), ("cp39-cp39-linux_x86_64", False), ("cp311-cp311-linux_s390x", False)]
)
def test_wheel_is_for_this_interpreter_by_its_tags(tag: str, fits: bool) -> None:
    assert is_for_this_interpreter(Path(f"probe-1-{tag}.whl")) == fits
