"""Prerequisites of the pipeline beyond the router: the Python extra, and Java for Spark."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from sluice.pipeline.errors import MissingError

EXTRA = ("pyarrow", "pandas", "pyspark")
#: Oldest version of Spark with data sources in Python, and the first one that the tests have not run with.
SPARK_OLDEST, SPARK_UNTESTED = (4, 0), (4, 4)
JAVA_OLDEST = 17
JAVA_PATIENCE = 20.0  # seconds


def require(*modules: str, extra: str = "pipeline") -> None:
    """Raise MissingError unless these modules of an extra are installed, and Spark is not too old."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{', '.join(missing)} not installed: pip install 'sluice-router[{extra}]'")
    if "pyspark" in modules and spark_version() < SPARK_OLDEST:
        oldest = ".".join(map(str, SPARK_OLDEST))
        raise MissingError(
            f"pyspark {importlib.metadata.version('pyspark')} has no data sources in Python: the pipeline needs "
            f"{oldest} or later: pip install 'sluice-router[{extra}]'"
        )


def spark_version() -> tuple[int, int]:
    """Return the major and minor version of the installed Spark."""
    major, minor = importlib.metadata.version("pyspark").split(".")[:2]
    return int(major), int(minor)


def find_java() -> str:
    """Return the path of a Java that Spark supports. Raises MissingError."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = str(Path(home, "bin", "java"))
        if not os.access(path, os.X_OK):
            raise MissingError(f"JAVA_HOME is {home!r}, which has no bin/java: Spark needs Java {JAVA_OLDEST} or later")
    else:
        found = shutil.which("java")
        if found is None:
            raise MissingError(
                f"no Java was found: Spark needs {JAVA_OLDEST} or later (Debian: apt-get install default-jre-headless)"
            )
        path = found
    version = java_version(path)
    if version < JAVA_OLDEST:
        raise MissingError(f"{path} is Java {version}: Spark needs {JAVA_OLDEST} or later")
    return path


def java_version(path: str) -> int:
    """Return the major version of a Java. Raises MissingError if that Java does not run."""
    try:
        ran = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{path} does not run: {error}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if ran.returncode or match is None:
        said = (ran.stderr + ran.stdout).strip().splitlines()
        raise MissingError(f"{path} -version fails: {said[0] if said else f'exit status {ran.returncode}'}")
    return int(match[1])
