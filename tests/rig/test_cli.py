"""A user's mistake is one sentence on stderr and exit 2."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from agentdyno.cli import run
from agentdyno.contract.adapter import AdapterError, check_class, read_folder
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.environments.frameworks import UnknownFramework, resolve, resolve_folder
from agentdyno.rig.environments.listing import framework_table
from agentdyno.rig.environments.new_adapter import create
from tests.rig.conftest import Checkout

TOML = '[[variant]]\nname = "{0}"\ntitle = "{0}"\nentry = "adapter:It"\n'


def test_an_unknown_framework_offers_the_nearest(checkout: Checkout) -> None:
    (checkout.folder / "adapter.toml").write_text(TOML.format("tiny") + TOML.format("tiny-tuned") + TOML.format("else"))
    folder, variant = resolve("tiny-tuned", checkout.root)
    assert (folder.path, variant.name) == (checkout.folder, "tiny-tuned")
    with pytest.raises(UnknownFramework) as caught:
        resolve("tinny", checkout.root)
    assert str(caught.value) == (
        "There is no framework 'tinny'. Did you mean tiny or tiny-tuned? There are: else, tiny, tiny-tuned."
    )
    with pytest.raises(UnknownFramework, match=r"^There is no framework 'xyz'\. There are: else"):
        resolve("xyz", checkout.root)


def test_a_folder_counts_before_its_adapter_is_written(checkout: Checkout) -> None:
    with pytest.raises(UnknownFramework, match="none in"):
        resolve_folder("tiny", checkout.root)
    (checkout.folder / "requirements.in").touch()
    assert resolve_folder("tiny", checkout.root) == checkout.folder
    with pytest.raises(UnknownFramework):
        resolve_folder("../adapters/tiny", checkout.root)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["env", "langchian"], "agentdyno: There is no framework 'langchian'. Did you mean langchain?"),
        (["env"], "agentdyno: Name at least one framework"),
        (["lock", "nothing-like-it"], "agentdyno: There is no framework 'nothing-like-it'."),
        (["new", "Not A Name"], "agentdyno: 'Not A Name' cannot be a framework's name"),
        (["list", "--bogus"], "agentdyno: No such option"),
        (["bnech"], "agentdyno: No such command 'bnech'"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(sentence)
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["--help"], ["env", "--help"]])
def test_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 0
    assert "Usage: agentdyno" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, agentdyno.cli as cli; cli.run(['--help']); "
        "print(sorted({'numpy', 'pyarrow', 'duckdb', 'locust', 'gevent', 'kubernetes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_list_says_how_each_is_measured(checkout: Checkout) -> None:
    toml = TOML.format("tiny") + 'distribution = "tinydist"\nplans_with = "state-machine"\n'
    (checkout.folder / "adapter.toml").write_text(toml)
    heading, row = framework_table(checkout.root).splitlines()
    assert heading.split("  ")[0] == "NAME"
    assert row.split() == ["tiny", "1.0", "default", "state-machine", "4", "not", "built", "tiny"]
    checkout.environment.lock.unlink()
    assert "no lock" in framework_table(checkout.root)


def test_a_new_adapter_is_complete_even_without_an_index(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    (checkout.root / "pyproject.toml").write_text('[project]\ndependencies = ["no-such-thing"]\n')
    text = create("my-own", checkout.root)
    assert "make lock FRAMEWORK=my-own" in text
    folder = read_folder(checkout.root / "adapters" / "my-own")
    assert [(variant.name, variant.entry) for variant in folder.variants] == [("my-own", "adapter:MyOwn")]
    spec = importlib.util.spec_from_file_location("new_adapter_under_test", folder.path / "adapter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check_class(module.MyOwn(), "the template")
    assert "TODO" in (folder.path / "requirements.in").read_text()
    with pytest.raises(AdapterError, match="already a framework 'my-own'"):
        create("my-own", checkout.root)


AGENTDYNO = Path(sys.executable).parent / "agentdyno"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    done = subprocess.run(["bash", "-c", f"set -o pipefail; '{AGENTDYNO}' list | true"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_closed_outputs_are_no_traceback(closed: str) -> None:
    done = subprocess.run(["bash", "-c", f"'{AGENTDYNO}' list {closed}"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""
