"""Ctrl-C ends a long run with one line and exit code 130, and the line says how to go on."""

import pytest

from crowdml.cli import output


def test_ctrl_c_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, output.Progress("digits", quiet=True):
        interrupt = KeyboardInterrupt()
        interrupt.add_note("--resume goes on")
        raise interrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted; --resume goes on\n"
