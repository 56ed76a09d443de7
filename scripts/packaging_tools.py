"""Install what `make test-packaging` needs into build/tools: helm, kubeconform, schemas of Kubernetes, Prometheus.

Go builds the two programs from their modules, which takes minutes, once. The schemas are those of the package
kubernetes-validate of PyPI, because kubeconform itself would fetch them for each check. Prometheus is unpacked from the
package of Debian; installed, it would start as a service. Exit status 1: something is missing; the tests that need it
say so and are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).resolve().parent.parent / "build/tools"
MODULES: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.18.4",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0",
}
SCHEMAS: Final = "kubernetes-validate==1.37.0"
#: Versions of Kubernetes to check against: the oldest that the chart admits, and the newest.
VERSIONS: Final = ("1.30.0", "1.37.0")
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
BUILD_SECONDS: Final = 1800
MONITORING: Final = ("prometheus", "promtool")


def build(name: str) -> bool:
    """Build a program from its Go module. Returns False if that fails."""
    if (TOOLS / name).exists():
        return True
    if shutil.which("go") is None:
        print(f"packaging_tools: no {name}: no go on the path", file=sys.stderr)
        return False
    environment = {**os.environ, "GOBIN": str(TOOLS)}
    try:
        subprocess.run(["go", "install", MODULES[name]], env=environment, timeout=BUILD_SECONDS, check=True)
    except subprocess.SubprocessError as error:
        print(f"packaging_tools: no {name}: {error}", file=sys.stderr)
        return False
    return True


def fetch_schemas() -> bool:
    """Write the schemas of Kubernetes in the form that kubeconform reads. Returns False if they cannot be had."""
    target = TOOLS / "schemas"
    if all((target / f"v{version}").is_dir() for version in VERSIONS):
        return True
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "pip", "install", "--quiet", "--no-input", "--no-deps", "--target", folder, SCHEMAS]
        if subprocess.run([sys.executable, *words]).returncode:
            print(f"packaging_tools: no schemas: pip cannot install {SCHEMAS}", file=sys.stderr)
            return False
        for version in VERSIONS:
            source = Path(folder, "kubernetes_validate/kubernetes-json-schema", f"v{version}-local-strict")
            convert_schemas(source, target / f"v{version}")
    return True


def convert_schemas(source: Path, target: Path) -> None:
    """Copy schemas so that their references are files in the same folder, not paths of a registry."""
    new = target.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for file in source.glob("*.json"):
        schema = json.loads(file.read_text().replace("/api/_definitions.json", "_definitions.json"))
        schema.pop("$id", None)
        (new / file.name).write_text(json.dumps({**schema, "$schema": DIALECT}))
    new.rename(target)


def unpack_prometheus() -> bool:
    """Unpack Prometheus and promtool from their Debian package. Returns False if it cannot be had."""
    if all((TOOLS / name).exists() for name in MONITORING):
        return True
    if shutil.which("apt-get") is None:
        print("packaging_tools: no prometheus: no apt-get on the path", file=sys.stderr)
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=folder, check=True)
            (package,) = Path(folder).glob("prometheus_*.deb")
            subprocess.run(["dpkg", "--extract", str(package), folder], check=True)
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"packaging_tools: no prometheus: {error}", file=sys.stderr)
            return False
        for name in MONITORING:
            shutil.move(Path(folder, "usr/bin", name), TOOLS / name)
    return True


def main() -> int:
    """Install all tools. Returns the exit status."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    return 0 if all([build("helm"), build("kubeconform"), fetch_schemas(), unpack_prometheus()]) else 1


if __name__ == "__main__":
    sys.exit(main())
