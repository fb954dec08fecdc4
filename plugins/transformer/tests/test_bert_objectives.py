"""Spans and hidden symbols: losses, metrics and predictions beside plain loops over all possibilities."""

import math

import pytest
import torch
import torch.nn.functional as F
from pegboard import Context, DataSpec, PegboardError
from pegboard_label_smoothing.functional import smooth_labels
from pegboard_transformer import Masked, Span, pegboard_objectives
from pegboard_transformer.objectives import best_span, follow_part, span_overlap

PARTS = {part.name: part for part in pegboard_objectives()}
VOCAB, LENGTH = 7, 9


def build(name, target, **fields):
    part = PARTS[name]
    return part.build(part.config(**fields), Context(spec=DataSpec((), target), outputs=target.size))


def figures(objective, *update):
    found = objective.metrics()
    for metric in found.values():
        metric.update(*update)
    return {name: float(metric.compute()) for name, metric in found.items()}


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def searched(start, end, longest):
    """The best of all spans, one by one."""
    n = len(start)
    spans = [(i, j) for i in range(n) for j in range(i, n) if longest is None or j - i < longest]
    return max(spans, key=lambda span: float(start[span[0]] + end[span[1]]))


@pytest.mark.catalogue("S4-109")
@pytest.mark.parametrize("longest", [None, 1, 3, 50])
def test_the_span_predicted_is_the_best_of_all(longest):
    output = drawn(40, 2, LENGTH)
    output[::2, :, 5:] = -1e9  # places that cannot be part of an answer
    objective = build("span", Span(LENGTH), longest=longest)
    found = objective.predict(output)
    expected = [searched(*row, longest) for row in output]
    assert list(zip(found["start"].tolist(), found["end"].tolist(), strict=True)) == expected
    assert found["end"][::2].max() < 5
    chances = output.softmax(-1)
    torch.testing.assert_close(chances.sum(-1), torch.ones(40, 2))
    product = torch.tensor([chances[i, 0, a] * chances[i, 1, b] for i, (a, b) in enumerate(expected)])
    torch.testing.assert_close(found["probability"], product)


def test_the_span_is_not_that_of_the_two_best_ends_where_these_cross():
    output = torch.zeros(1, 2, 4)
    output[0, 0, 3], output[0, 0, 1], output[0, 1, 0], output[0, 1, 2] = 5.0, 3.0, 4.0, 3.0
    assert best_span(output).tolist() == [[1, 2]]


@pytest.mark.catalogue("S4-109")
def test_the_loss_of_a_span_is_the_mean_of_those_of_its_ends():
    output, target = drawn(6, 2, LENGTH), torch.tensor([[0, 3], [2, 2], [1, 8], [4, 5], [0, 0], [7, 8]])
    expected = (F.cross_entropy(output[:, 0], target[:, 0]) + F.cross_entropy(output[:, 1], target[:, 1])) / 2
    torch.testing.assert_close(build("span", Span(LENGTH)).loss(output, target), expected)


def test_exact_match_and_overlap_are_those_of_sets_of_places():
    output = drawn(30, 2, LENGTH)
    found = best_span(output)
    target = found.clone()
    target[10:, 1] = (target[10:, 1] + 2).clamp(max=LENGTH - 1)
    target[20:, 0] = 0
    target[25:] = -100
    scores = []
    for (a, b), (c, d) in zip(found[:25].tolist(), target[:25].tolist(), strict=True):
        one, other = set(range(a, b + 1)), set(range(c, d + 1))
        scores.append(2 * len(one & other) / (len(one) + len(other)))
    torch.testing.assert_close(span_overlap(found, target)[:25], torch.tensor(scores))
    measured = figures(build("span", Span(LENGTH)), output, target)
    assert measured["f1"] == pytest.approx(sum(scores) / 25)
    assert measured["exact_match"] == pytest.approx((found == target).all(1).float().sum().item() / 25)
    weight = torch.arange(30.0)
    weighed = figures(build("span", Span(LENGTH)), output, target, weight)
    expected = sum(w * s for w, s in zip(range(25), scores, strict=True)) / sum(range(25))
    assert weighed["f1"] == pytest.approx(expected)


def test_a_span_outside_the_text_is_an_error_in_words():
    with pytest.raises(PegboardError, match="place 9, and the text has 9 places: expected 0 to 8, or -100"):
        build("span", Span(LENGTH)).loss(drawn(1, 2, LENGTH), torch.tensor([[2, 9]]))


def hidden_and_output(rows=8):
    generator = torch.Generator().manual_seed(1)
    target = torch.randint(VOCAB, (rows, 1 + LENGTH), generator=generator)
    asked = torch.rand(rows, 1 + LENGTH, generator=generator) < 0.4
    target[:, 0] %= 2
    asked[:, 0] = torch.arange(rows) % 4 != 0
    return drawn(rows, 1 + LENGTH, VOCAB), target.masked_fill(~asked, -100), asked


@pytest.mark.catalogue("S4-107", "S4-108")
def test_pretraining_is_the_sum_of_two_means_over_what_is_asked():
    output, target, asked = hidden_and_output()
    objective = build("pretraining", Masked(VOCAB, LENGTH))
    leaf = output.clone().requires_grad_()
    loss = objective.loss(leaf, target)
    loss.backward()
    hidden = F.cross_entropy(output[:, 1:][asked[:, 1:]], target[:, 1:][asked[:, 1:]])
    follows = F.cross_entropy(output[:, 0, :2][asked[:, 0]], target[:, 0][asked[:, 0]])
    torch.testing.assert_close(loss.detach(), hidden + follows)
    assert (leaf.grad[~asked] == 0).all() and (leaf.grad[:, 0, 2:] == 0).all()
    assert (leaf.grad[:, 1:][asked[:, 1:]] != 0).all()
    nothing = torch.full_like(target, -100)
    assert objective.loss(output, nothing) == 0
    only = torch.cat((target[:, :1], nothing[:, 1:]), 1)
    torch.testing.assert_close(objective.loss(output, only), follows)


def test_metrics_of_pretraining_are_shares_of_what_is_asked():
    output, target, asked = hidden_and_output()
    objective = build("pretraining", Masked(VOCAB, LENGTH))
    measured = figures(objective, output, target)
    right = output.argmax(-1) == target
    assert measured["masked_accuracy"] == pytest.approx(right[:, 1:][asked[:, 1:]].float().mean().item())
    follows = output[:, 0, :2].argmax(-1) == target[:, 0]
    assert measured["next_accuracy"] == pytest.approx(follows[asked[:, 0]].float().mean().item())
    mean = F.cross_entropy(output[:, 1:][asked[:, 1:]], target[:, 1:][asked[:, 1:]])
    assert measured["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    kept = torch.arange(8) >= 3
    assert figures(objective, output, target, kept.float()) == pytest.approx(
        figures(objective, output[kept], target[kept]), rel=1e-6
    )
    unasked = figures(objective, output, torch.full_like(target, -100))
    assert all(map(math.isnan, unasked.values()))
    shown = objective.predict(output)
    torch.testing.assert_close(shown["follows"], output[:, 0, :2].softmax(-1)[:, 1])
    assert torch.equal(shown["symbols"], output[:, 1:].argmax(-1))


def test_smoothed_targets_of_pretraining_smooth_each_part_over_its_own_choices():
    output, target, asked = hidden_and_output()
    output[:, 0, 2:] = -1e9
    soft = smooth_labels(target, VOCAB, 0.2)
    torch.testing.assert_close(
        follow_part(soft)[asked[:, 0]], smooth_labels(target[:, 0], 2, 0.2)[asked[:, 0]]
    )
    assert (follow_part(soft)[~asked[:, 0]] == 0).all()
    places, index = output[:, 1:][asked[:, 1:]], target[:, 1:][asked[:, 1:]]
    expected = F.cross_entropy(places, index, label_smoothing=0.2) + F.cross_entropy(
        output[:, 0, :2][asked[:, 0]], target[:, 0][asked[:, 0]], label_smoothing=0.2
    )
    torch.testing.assert_close(build("pretraining", Masked(VOCAB, LENGTH)).loss(output, soft), expected)
