"""The package as a stranger gets it: built, and installed into an empty environment with nothing but its own needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not UV.exists():
        pytest.skip("uv is not in this environment")
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    wheel = next(folder.glob("crowdml-*.whl"))
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", wheel)
    return folder


def test_a_device_needs_no_jax(environment: Path) -> None:
    python = environment / "env" / "bin" / "python"
    code = "import crowdml.algorithms, crowdml.data, crowdml.wire, crowdml.cli.app, sys; print('jax' in sys.modules)"
    assert run(python, "-c", code, cwd=environment).strip() == "False"
    assert "No module named 'jax'" in run(
        python, "-c", "try:\n import jax\nexcept ImportError as error:\n print(error)", cwd=environment
    )


def test_help_works(environment: Path) -> None:
    assert "crowd of devices" in run(environment / "env" / "bin" / "crowdml", "--help", cwd=environment)


def test_a_missing_extra_is_named(environment: Path) -> None:
    done = subprocess.run(
        [environment / "env" / "bin" / "crowdml", "demo"], capture_output=True, text=True, cwd=environment
    )
    assert done.returncode == 2
    wheel = next(environment.glob("crowdml-*.whl"))
    assert f"pip install '{wheel}[simulation]'" in done.stderr and "Traceback" not in done.stderr


def test_the_wheel_carries_the_demo_task_and_no_tests(environment: Path) -> None:
    names = zipfile.ZipFile(next(environment.glob("crowdml-*.whl"))).namelist()
    assert "crowdml/cli/digits.toml" in names
    assert not [name for name in names if name.startswith("tests")]
