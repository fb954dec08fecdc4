"""Sequences made to be remembered: a bit, two numbers, a text to copy."""

from __future__ import annotations

import pytest
import torch
from pegboard import Classes, Facts, PegboardError, Series, Tokens, Values


def rows(splits):
    return [splits.train, splits.val, splits.test]


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_a_bit_stands_at_the_first_step_and_only_there(build, noise):
    splits = build("recall", length=9, noise=noise, samples=400)
    assert splits.spec.inputs == (Series(9, 1),)
    assert splits.spec.target == Classes(2, ("minus", "plus"))
    for source in rows(splits):
        x = source.inputs[0]
        assert torch.equal(x[:, 0, 0], 2.0 * source.target - 1)
        assert x[:, 1:].std().item() == pytest.approx(noise, abs=0.05)
    later, bit = splits.train.inputs[0][:, 1:, 0].mean(1), splits.train.target.float()
    if noise:  # what comes later tells nothing
        assert abs(torch.corrcoef(torch.stack((later, bit)))[0, 1].item()) < 0.2


def test_the_target_of_adding_is_the_sum_of_two_marked_numbers_one_in_each_half(build):
    splits = build("adding", length=11, shortest=4, samples=500)
    assert splits.spec.inputs == (Series(11, 2, True),)
    assert splits.spec.target == Values(1)
    seen = set()
    for source in rows(splits):
        x, y = source.inputs[0], source.target
        lasts = ~x.isnan().all(-1)
        sizes = lasts.sum(1)
        seen |= set(sizes.tolist())
        assert torch.equal(lasts, torch.arange(11) < sizes[:, None])  # nothing but the end is missing
        number, mark = x.nan_to_num().unbind(-1)
        assert number.min() >= 0 and number.max() <= 1
        assert torch.equal(mark.sum(1), torch.full((len(x),), 2.0))
        first = torch.arange(11) < (sizes // 2)[:, None]
        assert torch.equal((mark * first).sum(1), torch.ones(len(x)))
        torch.testing.assert_close((number * mark).sum(1, keepdim=True), y)
    assert seen == set(range(4, 12))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_copy_is_the_text_in_order_or_reversed_behind_its_marks(build, reverse):
    splits = build("copying", symbols=4, length=6, shortest=2, reverse=reverse, samples=300)
    copy = Tokens(7, 7, 0, 1, 2)
    assert splits.spec.inputs == (Tokens(7, 6, 0), copy)
    assert splits.spec.target == copy
    lengths = set()
    for source in rows(splits):
        (texts, shifted), copies = source.inputs, source.target
        for text, before, after in zip(texts.tolist(), shifted.tolist(), copies.tolist(), strict=True):
            words = [symbol for symbol in text if symbol]
            lengths.add(len(words))
            assert text == words + [0] * (6 - len(words))
            assert set(words) <= {3, 4, 5, 6}
            expected = words[::-1] if reverse else words
            assert after == [*expected, 2] + [0] * (6 - len(words))
            assert before == [1, *expected] + [0] * (6 - len(words))
    assert lengths == {2, 3, 4, 5, 6}


def test_a_copy_reads_as_letters_and_is_written_as_them(build):
    splits = build("copying", symbols=3, length=4)
    source, begin = splits.encode({"source": ["a b c", "c"]})
    assert source.tolist() == [[3, 4, 5, 0], [5, 0, 0, 0]]
    assert begin.tolist() == [[1], [1]]
    assert splits.decode(torch.tensor([[3, 4, 2, 5], [5, 5, 5, 5]])) == ["a b", "c c c c"]
    assert splits.decode_input(0, source) == ["a b c", "c"]
    many = build("copying", symbols=30)
    assert many.encode({"source": ["1 30"]})[0].tolist() == [[3, 32, 0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a d", r"row 0 \(0 is the first\): 'd'.*words of a to c"),
        ("a a a a a", "5 words.*1 to 4"),
        ("", "0 words.*1 to 4"),
    ],
)
def test_a_text_that_cannot_be_copied_is_told(build, text, message):
    with pytest.raises(PegboardError, match=f"(?s){message}"):
        build("copying", symbols=3, length=4).encode({"source": [text]})


def test_series_are_read_from_lists_of_numbers(build):
    (x,) = build("adding", length=3).encode({"series": [[0.5, 1, 0.25, 0, 0.125, 1]]})
    assert x.tolist() == [[[0.5, 1], [0.25, 0], [0.125, 1]]]
    (x,) = build("recall", length=3, shortest=2).encode({"series": ["[1, 0]", [-1, 0, 2]]})
    assert x[0, :2, 0].tolist() == [1, 0]
    assert x[0, 2].isnan().all()
    assert x[1, :, 0].tolist() == [-1, 0, 2]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("adding", [1.0] * 5, "5 numbers.*2 numbers for each of 3 steps"),
        ("adding", [1.0] * 4, "4 numbers.*2 numbers for each of 3 steps"),
        ("recall", [], "0 numbers.*1 number for each of 3 steps"),
    ],
)
def test_series_of_another_length_are_told(build, name, value, message):
    with pytest.raises(PegboardError, match=f"(?s){message}"):
        build(name, length=3).encode({"series": [value]})


@pytest.mark.parametrize("name", ["copying", "recall", "adding"])
def test_the_shortest_is_no_longer_than_the_longest(parts, name):
    config = parts[name].config(length=4, shortest=5)
    assert [(p.field, p.expected) for p in parts[name].check(config, Facts())] == [("shortest", "at most 4")]
