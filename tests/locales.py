"""A locale with a decimal comma, for what must not depend on one; few machines have one, so it is made."""

from __future__ import annotations

import subprocess

import pytest

# What a program under test does first: it takes the locale of its environment, or fails.
WITH_COMMAS = """
import locale
locale.setlocale(locale.LC_ALL, "")
assert "," in f"{1234.5:n}", "the locale of this test has a decimal comma"
"""


@pytest.fixture(scope="session")
def comma_locale(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables that choose it: de_DE.UTF-8, compiled from the system's sources."""
    folder = tmp_path_factory.mktemp("locales")
    command = ["localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")]
    try:
        subprocess.run(command, capture_output=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("this system has no localedef to make a locale with")
    if not (folder / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip("this system has no source of the locale de_DE: Debian has it in the package locales")
    return {"LC_ALL": "de_DE.UTF-8", "LOCPATH": str(folder)}
