"""Bill of materials of the container image: packages of Debian and of Python, each with its package URL."""

import json
from pathlib import Path

from scripts.image_content import DebianPackage, PythonPackage, folder_octets, list_debian_packages, write_content


def test_debian_packages_are_read_from_their_control_files(tmp_path: Path) -> None:
    (tmp_path / "libssl3").write_text(
        "Package: libssl3\nSource: openssl (3.0)\nVersion: 3.0.1-1~a\nArchitecture: amd64\n"
    )
    (tmp_path / "libssl3.files").write_text("/usr/lib/libssl.so.3\n")
    assert list_debian_packages(tmp_path) == [DebianPackage("libssl3", "3.0.1-1~a", "amd64", "openssl")]


def test_components_have_package_urls(tmp_path: Path) -> None:
    debian = [DebianPackage("libstdc++6", "12.2.0-14+deb12u1", "amd64", "gcc-12")]
    python = [PythonPackage("Prometheus_Client", "0.26.0", "Apache-2.0"), PythonPackage("sluice-router", "1", "")]
    write_content(tmp_path / "sbom", debian, python)
    document = json.loads((tmp_path / "sbom").read_text())
    assert [each["purl"] for each in document["components"]] == [
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&upstream=gcc-12",
        "pkg:pypi/prometheus-client@0.26.0",
    ]
    assert document["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in document["components"]]


def test_file_with_two_links_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert folder_octets(tmp_path) == 100
