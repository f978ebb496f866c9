"""crowdml import-legacy as its user meets it: files, standard output, exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
OLD = {
    "lossFunction": "Softmax",
    "descentAlg": "sqrt",
    "naughtRate": 10,
    "D": 64,
    "K": 10,
    "clientBatchSize": 20,
    "localUpdateNum": 3,
    "noiseDistribution": "NoNoise",
    "maxIter": 5,
}


def crowdml(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from crowdml.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "configuration.json").write_text(json.dumps(OLD))
    return tmp_path


def test_the_file_goes_from_standard_output_to_a_simulation(folder: Path) -> None:
    shown = crowdml("import-legacy", "configuration.json", cwd=folder)
    assert (shown.returncode, shown.stderr) == (0, "")
    written = crowdml("import-legacy", "configuration.json", "-o", "task.toml", cwd=folder)
    assert (written.returncode, written.stdout) == (0, "")
    assert (folder / "task.toml").read_text() == shown.stdout
    ran = crowdml("simulate", "task.toml", "--trials", "1", "--json", "-", cwd=folder)
    assert json.loads(ran.stdout)["updates"] == 100, ran.stderr


def test_nothing_is_overwritten_unless_told(folder: Path, run: Run) -> None:
    (folder / "task.toml").write_text("mine")
    code, _, said = run("import-legacy", "configuration.json", "-o", "task.toml")
    assert code == 2 and "--force" in said and "Traceback" not in said
    assert (folder / "task.toml").read_text() == "mine"
    assert run("import-legacy", "configuration.json", "-o", "task.toml", "--force")[0] == 0
    assert (folder / "task.toml").read_text() != "mine"


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b'{"D": 64,\n "K" 10}', (), "line 2, column 6"),
        (b"\xff\xfe", (), "not a file of text"),
        (b"{}", ("-o", "nowhere/task.toml"), "does not exist"),
        (None, (), "there is no file"),
        (json.dumps(OLD).encode(), ("--dataset", "digit"), "did you mean"),
    ],
)
def test_mistakes_end_with_code_2(
    tmp_path: Path, run: Run, content: bytes | None, arguments: tuple[str], message: str
) -> None:
    if content is not None:
        (tmp_path / "old.json").write_bytes(content)
    code, printed, said = run("import-legacy", "old.json", *arguments)
    assert code == 2 and message in said and "Traceback" not in said
    assert printed == ""


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path, run: Run) -> None:
    (tmp_path / "old.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(OLD).encode())
    assert run("import-legacy", "old.json")[0] == 0
