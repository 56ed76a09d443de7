"""Documents of the Debian package."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from scripts.build_deb import copy_documents


@pytest.mark.starts
def test_package_documents_have_man_pages_and_completion(tmp_path: Path) -> None:
    copy_documents(tmp_path)
    share = tmp_path / "usr" / "share"
    pages = {str(path.relative_to(share / "man")) for path in share.glob("man/*/*")}
    assert {"man1/sluice.1.gz", "man1/sluice-run.1.gz", "man5/sluice.conf.5.gz", "man8/qdstat.8.gz"} <= pages
    assert gzip.decompress((share / "man/man1/sluice.1.gz").read_bytes()).startswith(b".TH")
    assert (share / "bash-completion/completions/sluice").exists()
    assert (share / "zsh/vendor-completions/_sluice").exists()
    assert (share / "fish/vendor_completions.d/sluice.fish").exists()
