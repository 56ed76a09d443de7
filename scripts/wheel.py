"""Wheel of the router, for the programs that put it into an image or a package."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def build_wheel(folder: Path) -> Path:
    """Build a wheel of the checkout in a folder, of the modules that `make build` has compiled. Return its path.

    Raises CalledProcessError, after the output has named the fault.
    """
    subprocess.run([ROOT / "scripts" / "build-wheel", folder], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel
