"""The command line's sections, and names of commands of earlier releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from nnbridge.cli.commands import SECTIONS, cli
from nnbridge.cli.old_names import NEW_NAMES
from nnbridge.cli.sections import option_sections
from tests.commands import call, data
from tests.conftest import MODELS

INT8 = str(MODELS / "digits_int8.tflite")
ROOT = click.Context(cli, info_name="nnbridge")


def test_at_most_15_commands_are_listed_each_in_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(cli.list_commands(ROOT))
    assert len(listed) == len(set(listed)) <= 15
    shown = call("--help").stdout
    assert [title for title in SECTIONS if f"\n{title}:\n" in shown] == list(SECTIONS)


def test_without_arguments_three_commands_for_a_file_are_shown() -> None:
    result = call()
    assert result.exit_code == 0
    assert result.stdout.count("  nnbridge ") == 3


def test_options_are_listed_by_section_with_the_most_used_first() -> None:
    command = cli.get_command(ROOT, "compare")
    assert command is not None
    sections = dict(option_sections(command, click.Context(command, info_name="compare")))
    assert list(sections) == ["Options", "Devices", "Conversion", "Inputs", "Comparison", "Output"]
    assert len(sections["Options"]) <= 10
    assert [name.split()[0] for name, _ in sections["Comparison"]][:2] == ["--against", "--seeds"]
    assert "--device" in {name.split()[0]: text for name, text in sections["Options"]}


def test_every_option_is_in_one_section() -> None:
    def commands(command: click.Command, context: click.Context) -> Any:
        yield command, context
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, click.Context(found, info_name=name, parent=context))

    for command, context in commands(cli, ROOT):
        listed = [record for _, records in option_sections(command, context) for record in records]
        records = [p.get_help_record(context) for p in command.get_params(context) if isinstance(p, click.Option)]
        assert sorted(listed) == sorted(record for record in records if record is not None)


@pytest.mark.parametrize("old", NEW_NAMES, ids=" ".join)
def test_an_old_name_is_hidden_and_its_help_is_that_of_the_new_one(old: tuple[str, ...]) -> None:
    assert old[0] not in cli.list_commands(ROOT)
    new = [word for word in NEW_NAMES[old] if not word.startswith("-")]
    result = call(*old, "--help")
    assert result.stdout.startswith(f"Usage: cli {' '.join(new)} ")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (("extract", INT8, "--operations", "2-3", "-o"), ("convert", INT8, "--operations", "2-3", "-o"), "convert MODEL"),
        (("export-overlay", INT8, "-o"), ("report", INT8, "-o"), "report MODEL -o FILE.json"),
    ],
)
def test_an_old_name_works_and_names_the_new_form_on_standard_error(
    old: tuple[str, ...], new: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    output = tmp_path / ("part.nnapi" if old[0] == "extract" else "overlay.json")
    result = call(*old, output, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith(f"nnbridge {old[0]} is nnbridge {line}")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == call(*new, output, "--json").stdout


def test_the_environment_of_ndk_clients_is_printed_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "libneuralnetworks.so").touch()
    old = call("ndk", "env", tmp_path)
    assert old.stderr.strip() == "nnbridge ndk env is nnbridge build ndk-env now"
    assert old.stdout == call("build", "ndk-env", tmp_path).stdout


def test_defaults_of_an_old_name_hold_for_it_and_those_of_the_new_name_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nnbridge.toml").write_text('[extract]\noperations = "2-3"\n[convert]\nmapping = "wide"\n')
    assert data("extract", INT8, "-o", "part.nnapi")["operations"] == [2, 3]
    assert data("convert", INT8, "-o", "whole.nnapi")["operations"] == 11
    assert "--mapping wide" in call("extract", INT8, "-o", "part.nnapi").stderr


def test_a_wrong_key_of_an_old_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nnbridge.toml").write_text("[extract]\noperation = 2\n")
    result = call("extract", INT8, "-o", "part.nnapi")
    assert result.exit_code == 2
    assert "operations" in result.stderr


def test_a_name_that_never_was_is_refused_with_what_is_near() -> None:
    result = call("exract", INT8)
    assert result.exit_code == 2
    assert "No such command 'exract'" in result.stderr
