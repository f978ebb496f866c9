"""Every sentence of an explanation, over recipes and terms: what must be said, and what must not."""

from __future__ import annotations

import pytest

from crowdml.cli.privacy import print_explanation
from crowdml.task import parse
from crowdml.task.explanation import Explanation, explain

TASK = """
crowdml = 1
name = "walk"
[data]
features = 4
labels = ["standing", "walking"]
transform = [{{ kind = "norm", order = 2, at-most = 1.0 }}, {{ kind = "norm", order = 1, at-most = 1.0 }}]
[model]
kind = "softmax"
[algorithm]
{algorithm}
[privacy]
{privacy}
[stop]
{stop}
[secure-aggregation]
enabled = {masked}
"""
ALGORITHMS = {
    "crowd-sgd": 'kind = "crowd-sgd"\nbatch = 4',
    "crowd-sgd, large batch": 'kind = "crowd-sgd"\nbatch = 4000\nbuffer = 4000',
    "local-sgd": 'kind = "local-sgd"\nlocal-steps = 2\nserver-batch = 40',
    "fedavg": 'kind = "fedavg"\nper-round = 40',
    "fedavg, stable": 'kind = "fedavg"\nper-round = 40\nlocal-batch = 5\nrate = { kind = "constant", c = 0.1 }',
    "fedsgd": 'kind = "fedsgd"\nper-round = 40',
    "admm": 'kind = "admm"',
    "admm-sums": 'kind = "admm-sums"',
    "consensus-newton": 'kind = "consensus-newton"',
    "central-sgd": 'kind = "central-sgd"',
}
GAUSSIAN = 'mechanism = "gaussian"\nclip = 0.5\nepsilon = 8.0\ndelta = 1e-5\n'
PRIVACY = {
    "none": 'mode = "none"',
    "paper": 'mode = "paper"\nepsilon = 2.0',
    "paper, gaussian": 'mode = "paper"\nmechanism = "gaussian"\nepsilon = 2.0\ndelta = 1e-3\nclip = 1.0',
    "given noise": 'mode = "paper"\nnoise-scale = 0.5',
    "sample": "max-uses = 3\nepsilon = 8.0",
    "sample, counts": "max-uses = 3\nepsilon = 8.0\nstatistics-epsilon = 0.5",
    "sample, counts, clip": "max-uses = 3\nepsilon = 8.0\nstatistics-epsilon = 0.5\nclip = 1.0",
    "sample, owners": "max-uses = 3\nepsilon = 8.0\nowner-range = [1.0, 10.0]",
    "sample, ε = 1000": "max-uses = 3\nepsilon = 1000.0",
    "sample, gaussian": f"{GAUSSIAN}max-uses = 3",
    "sample, ten uses": f"{GAUSSIAN}max-uses = 10",
    "device": f'{GAUSSIAN}unit = "device"\nunits = 500',
}

COUNTS = "counts of errors and labels included"
CLEAR = "how many rows stand behind a message, and when it is sent, are not hidden"
TRUSTED = "Nobody but the device itself has to be trusted for that"
NOT_LIVE = "only a simulation can run this task"
PROMISED, LEDGER = "is promised ε = ", "The device's ledger enforces it by "
ALWAYS_ABSENT = ("statistics included", "agreement", "--home", "Nobody has to be trusted", "1.01e+304")

CASES: dict[str, tuple[tuple[str, str, bool, str], tuple[str, ...], tuple[str, ...]]] = {
    "no noise": (
        ("crowd-sgd", "none", False, ""),
        ("No formal guarantee: what leaves a device carries no noise.",),
        (PROMISED, LEDGER, NOT_LIVE, "ε ="),
    ),
    "masked, no noise": (
        ("fedavg", "none", True, ""),
        ("No formal guarantee", "nothing but sums of at least 28 devices"),
        (PROMISED, LEDGER, "in clear sums"),
    ),
    "rows handed over": (
        ("central-sgd", "none", False, ""),
        ("No formal guarantee: rows and labels leave a device as they are.", NOT_LIVE),
        ("carries no noise", PROMISED),
    ),
    "rows handed over, noisy": (
        ("central-sgd", "paper", False, ""),
        ("It claims ε = 2 once for the whole task", "no owner is promised anything"),
        ("for each release", LEDGER),
    ),
    "paper": (
        ("crowd-sgd", "paper", False, ""),
        ("It claims ε = 2 for each release; no owner is promised anything",),
        (LEDGER, "δ", NOT_LIVE),
    ),
    "paper, gaussian": (
        ("crowd-sgd", "paper, gaussian", False, ""),
        ("It claims ε = 2 and δ = 0.001 for each release",),
        (LEDGER, PROMISED),
    ),
    "paper, duals": (
        ("admm", "paper, gaussian", False, ""),
        ("made of a local model with gaussian noise, simulated", "for the first iteration only"),
        (LEDGER, "update/0/w in clear"),
    ),
    "given noise": (
        ("local-sgd", "given noise", False, ""),
        ("No formal guarantee: for noise given by its standard deviation no ε can be stated.",),
        (PROMISED, LEDGER),
    ),
    "pure, no counts": (
        ("crowd-sgd", "sample", False, ""),
        (f"Each sample {PROMISED}8 over the 3 releases it may enter: replacing it by another", TRUSTED, CLEAR),
        (COUNTS, " and δ", "but for δ", NOT_LIVE, "no proof is known", "ε above 1000"),
    ),
    "pure, counts": (
        ("crowd-sgd", "sample, counts", False, ""),
        (f"over the 3 releases it may enter, {COUNTS}: replacing", CLEAR, "not limited", "without stop.max-releases"),
        (" and δ",),
    ),
    "counts wanted, none sent": (("local-sgd", "sample, counts, clip", False, ""), (PROMISED,), (COUNTS, CLEAR)),
    "fewer releases than uses": (
        ("crowd-sgd", "sample", False, "max-releases = 2"),
        ("over the 2 releases that a device may make; the noise would do for 3",),
        ("the 3 releases it may enter", "not limited", "without stop.max-releases"),
    ),
    "one release": (
        ("crowd-sgd", "sample", False, "max-releases = 1"),
        ("over the one release that a device may make",),
        ("1 releases",),
    ),
    "ε of many rows at once": (
        ("crowd-sgd, large batch", "sample", False, "max-releases = 6"),
        ("ε above 1000: says nothing", "grows with the number of its rows"),
        ("not limited",),
    ),
    "largest ε": (
        ("crowd-sgd", "sample, ε = 1000", False, ""),
        ("by a factor of at most e^1000. The",),
        ("e^1000 =",),
    ),
    "all rows of a device": (
        ("fedsgd", "sample, gaussian", False, "max-releases = 6"),
        ("ε above 1000: says nothing", CLEAR, "no promise to more than 99999"),
        ("not limited", COUNTS),
    ),
    "owners choose": (
        ("crowd-sgd", "sample, owners", False, ""),
        ("owners may choose their own ε from 1 to 10",),
        (COUNTS,),
    ),
    "gaussian": (
        ("crowd-sgd", "sample, gaussian", False, ""),
        ("and δ = 1e-05 over", "but for δ", "enforces it by Σμ² of Gaussian noise", "rounded gaussian noise"),
        (COUNTS, "Σε,", "no proof is known", "more is charged"),
    ),
    "device": (
        ("local-sgd", "device", False, "max-releases = 6"),
        (
            f"Each device, with all its samples, {PROMISED}8 and δ = 1e-05 over the 6 releases it may make",
            "replacing all its rows by as many others",
            "a promise to 500 devices, as many as the operator declares",
            "when a device sends a message is not hidden",
        ),
        ("nobody declares", CLEAR, "it may enter"),
    ),
    "stable steps": (
        ("fedavg, stable", "sample, gaussian", False, ""),
        ("these steps are proven to be stable",),
        ("nothing is proven",),
    ),
    "unproven steps": (
        ("local-sgd", "sample, gaussian", False, ""),
        ("nothing is proven about one sample but the bound on the whole message",),
        ("proven to be stable", CLEAR),
    ),
    "masked": (
        ("fedavg", "device", True, "max-releases = 6"),
        (
            "It rests on secure aggregation and on other devices",
            "a share of discrete gaussian noise",
            "when a device takes part",
            "for discrete noise no proof is known that is as sharp, so 8% more is charged",
        ),
        (TRUSTED, "weight in clear", "Σμ²"),
    ),
    "made for sums, alone": (
        ("admm-sums", "device", False, "max-releases = 6"),
        ("would be promised ε = 8", NOT_LIVE, "nobody may see one device's message"),
        (PROMISED,),
    ),
    "squares first": (
        ("consensus-newton", "sample, ten uses", True, ""),
        ("over the 9 releases it may enter", "grows with its rows", "products of a row's numbers with each other"),
        (COUNTS, TRUSTED),
    ),
}


@pytest.mark.parametrize("case", CASES, ids=CASES.keys())
def test_an_explanation_says_what_is_so_and_nothing_else(
    case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")  # a cell on one line
    (algorithm, privacy, masked, stop), said, unsaid = CASES[case]
    made = TASK.format(algorithm=ALGORITHMS[algorithm], privacy=PRIVACY[privacy], masked=str(masked).lower(), stop=stop)
    task = parse(made)
    found = explain(task)
    print_explanation(task, found)
    shown = " ".join(capsys.readouterr().out.split())
    parts = " ".join(f"{part.name} {part.protection}" for part in found.message_parts)
    meanings = [part.what for part in found.message_parts]
    text = " ".join([found.promise, *found.notes, parts, *meanings, *_reasons(found)])
    for words in said:
        assert words in text, words
    for words in (*unsaid, *ALWAYS_ABSENT):
        assert words not in text and words not in shown, words
    for reasons, figures in ((found.missing["per_release"], found.per_release), (found.missing["total"], found.total)):
        assert {unit for unit, figure in figures.items() if figure is None} == set(reasons), "a figure, or why not"
    if found.mode == "sound":
        assert all(reason in shown for reason in _reasons(found))
        unit = "device" if "Each device" in found.promise else "sample"
        total = found.total[unit]
        assert total is not None and task.privacy.epsilon is not None
        assert total.epsilon <= task.privacy.epsilon, "the promise covers what it adds up to"


def _reasons(found: Explanation) -> list[str]:
    return [reason for reasons in found.missing.values() for reason in reasons.values()]


def test_a_promise_to_devices_says_nothing_of_uses_that_no_device_counts() -> None:
    """Where whole devices are promised something, a sample may be in all their releases, whatever max-uses says."""
    texts = [
        TASK.format(algorithm=ALGORITHMS["crowd-sgd"], privacy=privacy, masked="false", stop="max-releases = 50")
        for privacy in (PRIVACY["device"], PRIVACY["device"] + "\nmax-uses = 3")
    ]
    of_sample, with_uses = (explain(parse(text)).total["sample"] for text in texts)
    assert of_sample is not None and with_uses == of_sample


@pytest.mark.parametrize("delta", ["1e-20", "1e-320"])
def test_a_tiny_delta_needs_more_noise_and_no_word_about_how_many_units_there_are(delta: str) -> None:
    found = []
    for text in ("1e-5", delta):
        privacy = f"{GAUSSIAN}max-uses = 3".replace("1e-5", text)
        made = TASK.format(algorithm=ALGORITHMS["crowd-sgd"], privacy=privacy, masked="false", stop="")
        found.append(explain(parse(made)))
    usual, tiny = (each.per_release["sample"] for each in found)
    assert usual is not None and tiny is not None and 8 >= tiny.epsilon > usual.epsilon / 2 > 0
    assert any("is no promise to more than" in note for note in found[0].notes)
    assert not any("is no promise" in note for note in found[1].notes)
