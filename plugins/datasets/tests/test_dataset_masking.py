"""Hidden symbols and pairs of sentences: their rates, and what is never chosen."""

import math

import pytest
import torch
from pegboard_datasets.masking import mask_tokens, pair_sentences

PADDING, BEGIN, END, MASK, VOCAB = 0, 1, 2, 3, 104


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def texts(rows=4000):
    """Texts of 128 symbols, with a begin, an end and padding."""
    tokens = torch.randint(4, VOCAB, (rows, 131), generator=generator(1))
    tokens[:, 0], tokens[:, -2], tokens[:, -1] = BEGIN, END, PADDING
    return tokens


def within(count, total, chance):
    """Within four standard deviations of what is expected."""
    return abs(count - total * chance) <= 4 * math.sqrt(total * chance * (1 - chance))


@pytest.mark.catalogue("S4-107")
@pytest.mark.parametrize("seed", range(3))
def test_symbols_are_hidden_at_the_rates_of_bert(seed):
    tokens = texts()
    inputs, hidden = mask_tokens(tokens, (PADDING, BEGIN, END), MASK, VOCAB, generator(seed))
    asked = hidden != -100
    ordinary, total = 4000 * 128, int(asked.sum())
    assert torch.equal(hidden[asked], tokens[asked])
    assert torch.equal(inputs[~asked], tokens[~asked])
    assert not asked[:, [0, -2, -1]].any()
    masked, kept = inputs[asked] == MASK, inputs[asked] == tokens[asked]
    assert within(total, ordinary, 0.15) and abs(total / ordinary - 0.15) < 0.002
    # One in a hundred of the symbols drawn at random is the one that stood there.
    rates = {"masked": (masked, 0.8), "kept": (kept, 0.1 + 0.1 / 100), "replaced": (~masked & ~kept, 0.099)}
    for which, chance in rates.values():
        assert within(int(which.sum()), total, chance) and abs(which.float().mean() - chance) < 0.005
    assert within(int((inputs == MASK).sum()), ordinary, 0.12)
    replaced = inputs[asked][~masked & ~kept]
    assert replaced.min() >= 4 and set(replaced.unique().tolist()) == set(range(4, VOCAB))


def test_hiding_is_a_function_of_its_arguments():
    tokens = texts(5)
    once, again = (mask_tokens(tokens, (PADDING,), MASK, VOCAB, generator(7), share=0.5) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not torch.equal(once[0], mask_tokens(tokens, (PADDING,), MASK, VOCAB, generator(8), share=0.5)[0])
    inputs, hidden = mask_tokens(tokens, (PADDING,), MASK, VOCAB, generator(), share=0.0)
    assert torch.equal(inputs, tokens) and (hidden == -100).all()
    with pytest.raises(ValueError, match="all 4 symbols are special"):
        mask_tokens(tokens % 4, range(3), MASK, 4, generator())


@pytest.mark.catalogue("S4-108")
def test_half_the_pairs_follow_and_none_of_the_others_reads_as_the_one_that_does():
    documents = torch.arange(40).repeat_interleave(torch.arange(40) % 7 + 1)
    contents = torch.randint(12, (len(documents),), generator=generator(2))
    first, second, follows = pair_sentences(documents, generator(), contents)
    assert first.tolist() == [i for i in range(len(documents) - 1) if documents[i] == documents[i + 1]]
    assert abs(int(follows.sum()) * 2 - len(follows)) <= 1
    assert torch.equal(second[follows == 1], first[follows == 1] + 1)
    wrong = follows == 0
    assert (contents[second[wrong]] != contents[first[wrong] + 1]).all()
    assert not torch.equal(follows, pair_sentences(documents, generator(1), contents)[2])


def test_a_sentence_that_does_not_follow_may_be_any_other():
    documents = torch.zeros(6, dtype=torch.long)
    seen = [set() for _ in range(5)]
    for seed in range(200):
        first, second, follows = pair_sentences(documents, generator(seed))
        for a, b, yes in zip(first.tolist(), second.tolist(), follows.tolist(), strict=True):
            if not yes:
                seen[a].add(b)
    assert seen == [set(range(6)) - {a + 1} for a in range(5)]
    with pytest.raises(ValueError, match="all sentences read alike"):
        pair_sentences(documents, generator(), documents)
    assert [len(found) for found in pair_sentences(torch.arange(3), generator())] == [0, 0, 0]
