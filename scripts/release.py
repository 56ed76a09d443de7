"""Make a release of this checkout: check it, build its files into dist/release, and tag it.

    make release VERSION=0.2.0 KEY=0123ABCD

Each step is a target of the Makefile. Nothing is published: .github/workflows/release.yml makes a draft when the tag is
pushed, and uses --files. --sums signs the files of that draft together with those that were built here.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.release_notes import CHANGELOG, notes, with_absolute_links  # noqa: E402  # after the path is set
from sluice.router.version import VERSION  # noqa: E402

CHART: Final = ROOT / "packaging/helm/sluice/Chart.yaml"
INTO: Final = ROOT / "dist/release"
SUMS: Final = "SHA256SUMS"
#: Public key that signs the checksums, for users who have no earlier release.
PUBLIC_KEY: Final = "release-key.asc"
#: Parts that need root or tools that not every machine has, so that a release may go without them.
OPTIONAL: Final = ("manylinux", "deb", "image", "chart")
CHECKS: Final = ("lint", "docs", "test")


def run(*words: str) -> str:
    """Run a program of the release in the checkout; return its output. Raises CalledProcessError."""
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def make(*words: str) -> None:
    """Run targets of the Makefile, with their output on the terminal. Raises CalledProcessError."""
    print("release: make", *words, flush=True)
    subprocess.run(["make", *words], cwd=ROOT, check=True)


def chart_versions(text: str) -> set[str]:
    """Return the versions in a Chart.yaml: of the chart, and of the router that it installs."""
    return set(re.findall(r'^(?:version|appVersion): "?([^"\n]+)"?$', text, re.MULTILINE))


def problems(version: str, *, own: str, changelog: str, chart: str, status: str, tags: Sequence[str]) -> list[str]:
    """Return what forbids a release. own: version of the checkout. status: `git status --porcelain`."""
    found = []
    if version != own:
        found.append(f"router/version.py says {own}, not {version}")
    if chart_versions(chart) != {version}:
        found.append(f"packaging/helm/sluice/Chart.yaml says {', '.join(sorted(chart_versions(chart)))}, not {version}")
    if notes(changelog, version) is None:
        found.append(f"CHANGELOG.md has no section '## {version}': rename 'Unreleased'")
    if status:
        found.append(f"there are changes that are not committed:\n{status}")
    if f"v{version}" in tags:
        found.append(f"the tag v{version} exists")
    return found


def collect(without: Sequence[str]) -> None:
    """Build the files of the release, and copy them to INTO."""
    make("wheel", "RELEASE=1")
    wheels = list((ROOT / "dist").glob(f"sluice_router-{VERSION}-*.whl"))
    if "manylinux" not in without:
        make("manylinux", "RELEASE=1")
        wheels = list((ROOT / "dist/manylinux").glob(f"sluice_router-{VERSION}-*.whl"))
    found = [*wheels, ROOT / f"dist/sluice_router-{VERSION}.tar.gz"]
    make("site")
    run("tar", "-C", "build", "-czf", str(INTO / f"sluice-site-{VERSION}.tar.gz"), "site")
    if "deb" not in without:
        make("deb", "RELEASE=1")
        found += (ROOT / "dist").glob(f"sluice-router_{VERSION}_*.deb")
    if "image" not in without:
        make("image", "RELEASE=1")
        run("tar", "-C", "build/image/oci", "-cf", str(INTO / f"sluice-image-{VERSION}.oci.tar"), ".")
        shutil.copy(ROOT / "build/image/root/usr/share/sluice/sbom.cdx.json", INTO / f"sluice-image-{VERSION}.cdx.json")
    if "chart" not in without:
        make("packaging-tools")
        run("build/tools/helm", "package", str(CHART.parent), "--destination", str(INTO))
    for file in found:
        shutil.copy(file, INTO)


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of each file of a folder, as `sha256sum -c` reads them; return the path of the sums."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith(SUMS))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    sums = folder / SUMS
    sums.write_text("".join(lines), "utf-8")
    return sums


def has_secret_key(key: str) -> bool:
    """Return whether GnuPG can sign with a key."""
    return subprocess.run(["gpg", "--batch", "--list-secret-keys", key], capture_output=True).returncode == 0


def write_signed_sums(folder: Path, key: str) -> None:
    """Write the public key, the checksums of all files of a folder, and their signature."""
    run("gpg", "--batch", "--yes", "--armor", "--output", str(folder / PUBLIC_KEY), "--export", key)
    sums = write_sums(folder)
    run("gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign", str(sums))
    run("gpg", "--verify", f"{sums}.asc", str(sums))


def sums_and_tag(key: str | None, *, tagged: bool) -> None:
    """Write the checksums, and tag the commit unless it is tagged. Sign both if there is a key."""
    tag = ["git", "tag", "--annotate", f"v{VERSION}", "--message", f"Sluice {VERSION}"]
    if key is None:
        write_sums(INTO)
    else:
        write_signed_sums(INTO, key)
        tag += ["--local-user", key]
    if tagged:
        return
    if key is None:
        print("release: no KEY: neither checksums nor tag are signed", file=sys.stderr)
    run(*tag)


def main(words: Sequence[str] | None = None) -> int:
    """Make a release; return the exit status."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("version")
    parser.add_argument("--key", help="key of GnuPG that signs the checksums and the tag")
    parser.add_argument("--files", action="store_true", help="only build the files, of a version that is tagged")
    parser.add_argument("--sums", action="store_true", help="only write the checksums of the files that are there")
    parser.add_argument("--without", nargs="*", default=[], choices=(*OPTIONAL, "test"), metavar="PART")
    given = parser.parse_args(words)
    tagged = given.files or given.sums
    status = run("git", "status", "--porcelain", "--untracked-files=no")
    tags = [] if tagged else run("git", "tag", "--list").split()
    found = problems(
        given.version,
        own=VERSION,
        changelog=CHANGELOG.read_text("utf-8"),
        chart=CHART.read_text("utf-8"),
        status=status,
        tags=tags,
    )
    if given.key is not None and not has_secret_key(given.key):
        found.append(f"GnuPG has no secret key {given.key}")
    if found:
        print(*(f"release: {each}" for each in found), sep="\n", file=sys.stderr)
        return 1
    try:
        if not given.sums:
            shutil.rmtree(INTO, ignore_errors=True)
            INTO.mkdir(parents=True)
            for check in CHECKS:
                if not given.files and check not in given.without:
                    make(check)
            collect(given.without)
            text = with_absolute_links(notes(CHANGELOG.read_text("utf-8"), VERSION) or "")
            (INTO / "notes.md").write_text(f"{text}\n", "utf-8")
        sums_and_tag(given.key, tagged=tagged)
    except subprocess.CalledProcessError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"release: the files of v{VERSION} are in {INTO}; nothing is pushed or published")
    return 0


if __name__ == "__main__":
    sys.exit(main())
