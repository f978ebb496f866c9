"""crowdml privacy explain, as an owner or an operator meets it."""

import json
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"
SOUND = (
    *("--set", "privacy.mode=sound", "--set", "privacy.mechanism=gaussian", "--set", "privacy.clip=0.5"),
    *("--set", "privacy.epsilon=8.0", "--set", "privacy.delta=1e-5", "--set", "privacy.max-uses=10"),
)


def explain(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from crowdml.cli import main; main()", "privacy", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=200)


def test_a_sound_task_is_explained(tmp_path: Path) -> None:
    ran = explain(str(EXAMPLE), *SOUND, "--json", "out.json", "--plot", "out.png", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    words = (
        "What leaves a device",
        "update/0/w",
        "in clear",
        "one device",
        "are not hidden",
        "proven by",
        "enforced:",
    )
    for word in words:
        assert word in " ".join(ran.stdout.split()), word
    # First in odds, then in ε: nothing of the field is read before the promise is understood.
    first, _, figures = ran.stdout.partition("In figures")
    assert "no method is right more than" in " ".join(first.split()) and "Who sees what" in first
    assert not re.search("[α-ωΑ-Ω]", first) and "ε = 8" in figures and first.count("◆") > 10
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["owner"]["row"]["odds"]["of_100"] == int(re.findall(r"more than\s+(\d+)\s+times", first)[0])
    assert content["enforced_by"] == content["total"]["sample"]["by"] == "Σμ² of Gaussian noise"
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_target_is_calibrated() -> None:
    """An eighth of ε, and Gaussian noise: between six and eight times the scale."""
    ran = explain(str(EXAMPLE), *SOUND, "--target-epsilon", "1.0", "--json", "-")
    content = json.loads(ran.stdout)
    scale = float(next(part["protection"] for part in content["leaving"] if "noise" in part["protection"]).split()[-2])
    assert content["target"]["epsilon"] == 1.0 and 6 < content["target"]["noise"] / scale < 8
    told = explain(str(EXAMPLE), *SOUND, "--target-epsilon", "1.0").stdout
    assert f"a total ε of 1 takes noise of scale {content['target']['noise']:g} levels" in told


def test_without_noise_there_is_no_guarantee() -> None:
    assert "No formal guarantee" in explain(str(EXAMPLE)).stdout


def test_terms_that_cannot_be_kept_are_refused() -> None:
    ran = explain(str(EXAMPLE), "--set", "privacy.mode=sound")
    assert ran.returncode == 2 and "epsilon" in ran.stderr and "Traceback" not in ran.stderr
