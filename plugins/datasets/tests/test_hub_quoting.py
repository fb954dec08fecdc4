"""Quotes in csv and tsv files: no row is lost without a word."""

from __future__ import annotations

import pegboard
import pytest
from pegboard import PegboardError

STRAY = (
    'text\tkind\nsize 5"\tlow\n"quoted start\thigh\nplain\tlow\nanother" end\thigh\n"also\tlow\nlast\thigh\n'
)


def write(tmp_path, name: str, text: str) -> str:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.fixture
def read(hub):
    from pegboard_datasets import Input

    return lambda path, **more: hub(
        path=path, inputs={"text": Input(kind="text")}, target="kind", val=0.0, test=0.0, **more
    )


def test_stray_quotes_of_a_tsv_file_lose_no_row_and_are_told_with_their_line(read, tmp_path):
    splits = read(write(tmp_path, "stray.tsv", STRAY))
    assert len(splits.train) == 6
    assert len(splits.warnings) == 1
    assert "stray.tsv:3:" in splits.warnings[0] and "quoting: standard" in splits.warnings[0]


def test_a_folder_of_tsv_files_is_read_the_same_way(read, tmp_path):
    write(tmp_path, "rows/train.tsv", STRAY)
    splits = read(str(tmp_path / "rows"))
    assert len(splits.train) == 6 and "train.tsv:3:" in splits.warnings[0]
    named = read(str(tmp_path / "rows"), files={"train": "train.tsv"})
    assert len(named.train) == 6 and "train.tsv:3:" in named.warnings[0]


def test_quotes_around_values_of_a_tsv_file_are_no_part_of_them(read, tmp_path):
    text = 'text\tkind\n"a ""b"" c"\tlow\nplain\thigh\n'
    splits = read(write(tmp_path, "good.tsv", text))
    assert len(splits.train) == 2 and splits.warnings == ()
    assert splits.notes["statistics"]["text"]["vocab"] == len(["<pad>", "<unk>", "a", '"', "b", "c", "plain"])


def test_lines_that_standard_quoting_joins_are_counted_and_told(read, tmp_path):
    splits = read(write(tmp_path, "reviews.csv", 'text,kind\n"one\ntwo",low\nthree,high\n\nfour,high\n'))
    assert len(splits.train) == 3
    assert "reviews.csv:2: 4 lines below the header became 3 rows" in splits.warnings[0]
    assert "begins in line 2 ends in line 3" in splits.warnings[0] and "quoting: none" in splits.warnings[0]


def test_text_behind_a_closing_quote_is_told(read, tmp_path):
    splits = read(write(tmp_path, "odd.csv", 'text,kind\nplain,low\n"one" two,low\nthree,high\n'))
    assert len(splits.train) == 3 and "odd.csv:3: text stands between" in splits.warnings[0]


def test_a_quote_that_nothing_closes_is_an_error_with_its_line(read, tmp_path):
    with pytest.raises(PegboardError, match=r"open\.csv:3: a quote begins a value and nothing closes it"):
        read(write(tmp_path, "open.csv", 'text,kind\none,low\n"two,low\nthree,high\n'))


def test_a_config_decides_what_quotes_are(read, tmp_path):
    path = write(tmp_path, "stray.tsv", 'text\tkind\n"one\tlow\ntwo"\thigh\nthree\tlow\n')
    whole = read(path, quoting="none")
    assert len(whole.train) == 3 and not whole.warnings
    joined = read(
        write(tmp_path, "joined.tsv", 'text\tkind\n"one\ntwo"\thigh\nthree\tlow\n'), quoting="standard"
    )
    assert len(joined.train) == 2 and "3 lines below the header became 2 rows" in joined.warnings[0]


def test_quoting_of_files_without_quotes_is_refused(tmp_path):
    config = {
        "data": {"name": "hub", "path": write(tmp_path, "rows.jsonl", "{}"), "inputs": ["a"], "target": "b",
                 "quoting": "none"},
        "model": {"name": "mlp"}, "optimizer": {"name": "adamw"},
    }  # fmt: skip
    with pytest.raises(PegboardError, match=r"quoting means nothing for \.jsonl files"):
        pegboard.plan(config)


def test_quoting_of_a_folder_without_tables_is_refused(read, tmp_path):
    write(tmp_path, "rows/train.jsonl", '{"text": "a", "kind": "b"}\n')
    with pytest.raises(PegboardError, match="has other files than csv and tsv"):
        read(str(tmp_path / "rows"), quoting="none")


def test_a_run_tells_the_warnings_of_its_data_before_the_first_step(tmp_path, rows_cache, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {
        "data": {"name": "hub", "path": write(tmp_path, "stray.tsv", "x\tkind\n" + '1\t"low\n2\thigh\n' * 8),
                 "inputs": ["x"], "target": "kind", "val": 0.2, "test": 0.2, "batch_size": 4},
        "model": {"name": "mlp", "hidden": [4]}, "optimizer": {"name": "adamw"},
        "trainer": {"epochs": 1, "device": "cpu"},
    }  # fmt: skip
    run = pegboard.train(config, quiet=True)
    told = capfd.readouterr().err
    assert "warning: data:" in told and "stray.tsv:2: a quote begins a value" in told
    assert "stray.tsv:2: a quote begins a value" in (run.folder / "plan.txt").read_text()
