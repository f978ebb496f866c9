"""Every message that a user can meet is documented: the page has them all, and the finder finds what is planted."""

import re
from pathlib import Path

import pydantic
import pytest

from crowdml.core import errors
from docs.writers.browser_messages import PARTICULAR, REMEDIES, reasons, refusals
from docs.writers.messages import MET_BY_USERS, Message, messages, messages_page

PLANTED = """
def first(path, short):
    what = f"{path} is no file"
    if short:
        raise BadInput(what, where="--file", hint="give another" if path else f"such as {path}")
    raise TermsViolated("too " + "much" + f" of {path}")

def second(error):
    def inner():
        raise Unreachable("nobody answers")
    raise BadInput(error.what, hint=error.hint)

def third():
    raise ValueError("a mistake of a programmer")
"""


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "module.py").write_text(PLANTED)
    assert messages(tmp_path) == {
        "Wire": {
            Message(kind="BadInput", text="… is no file", hint="give another"),
            Message(kind="BadInput", text="… is no file", hint="such as …"),
            Message(kind="TermsViolated", text="too much of …", hint=""),
            Message(kind="Unreachable", text="nobody answers", hint=""),
        }
    }


@pytest.fixture(scope="module")
def written() -> str:
    """The page, as it is written."""
    return messages_page()


def test_every_message_of_the_source_stands_on_the_page(root: Path, written: str) -> None:
    """Found in another way: by looking for plain texts right behind the name of an error."""
    page = re.sub(r"\\(.)", r"\1", written)
    source = "\n".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    plain = re.findall(rf'\b(?:{"|".join(MET_BY_USERS)})\(\s*"((?:[^"\\]|\\.)*)"\s*[,)]', source)
    assert len(plain) > 200
    assert [text for text in plain if text.replace('\\"', '"') not in page] == []


def test_every_kind_of_error_is_explained(root: Path, written: str) -> None:
    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and name.endswith(("d", "t", "e"))}
    kinds = {name for name in tree if issubclass(getattr(errors, name), errors.CrowdError)} - {"CrowdError"}
    raised = {
        name
        for path in (root / "src").rglob("*.py")
        for name in re.findall(r"raise (\w+)\(", path.read_text(encoding="utf-8"))
    }
    assert {"BadInput", "TermsViolated", "NotAuthorised"} <= kinds & raised
    for kind in (kinds & raised) | set(MET_BY_USERS):
        assert f"`{kind}`" in written.split("## ")[0], f"{kind} is not explained"


def test_every_example_on_the_page_for_reading_errors_is_a_message_that_exists(root: Path) -> None:
    """The table of common messages names messages as they are today."""
    known = [_bare(message.text) for found in messages().values() for message in found]
    known += [_wrong_kind(int, "20.0")]
    page = (root / "docs" / "how-to" / "read-errors.md").read_text(encoding="utf-8")
    table = page.split("| message | usual cause |")[1].split("\n\n")[0]
    said = [text for row in re.findall(r"^\| (`.*?`) \|", table, re.M) for text in re.findall(r"`([^`]+)`", row)]
    assert len(said) > 20
    code = "\n".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    for text in said:
        longest = max(re.split(r"…|\b[\d.]+\b|, not |\(", text), key=len).strip(' ."')
        assert any(_bare(longest) in one for one in known) or longest in code, f"nothing says: {text}"


def _wrong_kind(kind: type, value: str) -> str:
    """What pydantic says of a value of the wrong kind: those words are not ours."""
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(kind).validate_python(value, strict=True)
    return str(caught.value.errors()[0]["msg"])


def _bare(text: str) -> str:
    return " ".join(re.sub(r'[…"]', " ", text).split())


PLANTED_REASONS = """
export type Reason =
  | "bad-link" // the link is none
  | "bad-row" // the row is none
  | "malformed" // a message is none
  | "revoked" // unknown
  | "refused" // otherwise
  | "ended"; // over
"""

PLANTED_PAGE = r"""
/* require(no, "a comment says nothing") */
const LATE = "it is too late";
function first(task: string, path: string): never {
  if (!path) throw new Refusal("bad-link", `${task}: "${path}" leads ${path ? "there" : `to ${task}`}; ` + "copy it");
  require(/^[,)"]+$/.test(path) && path !== "some words here", "the path is odd");
  require(
    task.length === 1,
    LATE,
    "ended",
  );
  const [what, why] = [`row ${path}`, "is no row"];
  refuse(`${what} ${why}`);
  throw new RangeError("a mistake of a programmer");
}
function second(answer: Answer): Refusal {
  const revoked = "nobody knows this device";
  const sentences = { revoked, ended: `it is over: ${answer}` };
  return new Refusal(reason, sentences[reason] ?? `they refuse: ${answer}`);
}
"""


def test_what_is_planted_in_the_browser_device_is_found(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "refusal.ts").write_text(PLANTED_REASONS)
    (tmp_path / "core" / "page.ts").write_text(PLANTED_PAGE)
    found = {(each.reason, each.text) for each in refusals(tmp_path)}
    assert found == {
        ("bad-link", '…: "…" leads …; copy it'),
        ("malformed", "the path is odd"),
        ("ended", "it is too late"),
        ("bad-row", "row … is no row"),
        ("revoked", "nobody knows this device"),
        ("ended", "it is over: …"),
        ("refused", "they refuse: …"),
    }


def test_every_sentence_of_the_browser_device_stands_on_the_page(root: Path, written: str) -> None:
    """Found in another way: plain texts that end a call, or stand before its reason."""
    page = re.sub(r"\\(.)", r"\1", written)
    said = []
    for part in ("app", "core"):
        source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "web" / part).rglob("*.ts")))
        said += re.findall(r'new Refusal\(\s*"[\w-]+",\s*"([^"]+)"', source)
        if part == "core":  # where nothing else is said in words
            said += re.findall(r',\s*"([^"$]+ [^"]+ [^"]+)"(?:, "[\w-]+")?,?\s*\);', source)
    assert len(said) > 60
    assert [text for text in said if text not in page] == []


def test_every_refusal_of_the_browser_device_has_a_remedy(written: str) -> None:
    said = refusals()
    assert set(REMEDIES) == set(reasons()) == {each.reason for each in said}
    assert all(
        f"### `{reason}`: {meaning}\n\n{REMEDIES[reason]}\n\n- " in written for reason, meaning in reasons().items()
    )
    for start, remedy in PARTICULAR.items():
        assert any(each.text.startswith(start) for each in said), f"nothing says: {start}"
        assert f" → {remedy}\n" in written
