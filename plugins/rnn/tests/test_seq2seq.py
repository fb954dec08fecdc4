"""An encoder and a decoder: what goes between them, attention, teacher forcing, greedy and beam search."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pegboard import Context, DataSpec, Decoding, PegboardError, Tokens
from pegboard_rnn import Seq2Seq as Config
from pegboard_rnn.attention import Additive
from pegboard_rnn.seq2seq import Read, Seq2Seq
from pegboard_rnn.seq2seq_options import build_seq2seq
from torch import Tensor, nn
from torch.nn import functional as F

PADDING, BEGIN, END = 0, 1, 2
READ, WRITTEN = 9, 6  # symbols of the source and of the target
LENGTHS = (7, 4, 1, 6)
FORMS: dict[str, dict[str, Any]] = {
    "gru": {},
    "lstm": {"cell": "lstm", "layers": 2},
    "elman": {"cell": "elman", "bidirectional": False},
    "none": {"attention": "none", "embedding": 5},
    "none_lstm": {"cell": "lstm", "attention": "none", "bidirectional": False, "layers": 2},
}
EACH = pytest.mark.parametrize("form", FORMS)


def built(form: str = "gru", **fields: Any) -> Seq2Seq:
    target = Tokens(WRITTEN, 5, PADDING, BEGIN, END)
    spec = DataSpec((Tokens(READ, 7, PADDING), target), target)
    config = Config(**{"hidden": 8, **FORMS[form], **fields})
    model = build_seq2seq(config, Context(spec=spec, outputs=WRITTEN))
    assert isinstance(model, Seq2Seq)
    for p in model.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return model.eval()


def sources() -> Tensor:
    tokens = torch.randint(3, READ, (4, 7))
    return tokens.masked_fill(torch.arange(7) >= torch.tensor(LENGTHS).unsqueeze(1), PADDING)


def targets() -> Tensor:
    """Targets a step later, behind the symbol that begins them."""
    tokens = torch.randint(3, WRITTEN, (4, 5))
    tokens[:, 0] = BEGIN
    return tokens


def plainly(model: Seq2Seq, source: Tensor, count: int) -> Tensor:
    """The likeliest symbols by a pass over the whole text for each."""
    text = torch.full((len(source), 1), BEGIN)
    for _ in range(count):
        symbols, ended = model(source, text)[:, -1].argmax(-1), (text == END).any(1)
        text = torch.cat((text, torch.where(ended, END, symbols).unsqueeze(1)), 1)
    return text[:, 1:]


def score(model: Seq2Seq, source: Tensor, texts: Tensor) -> Tensor:
    """The log-probability of a text for each source, up to its end."""
    texts = F.pad(texts, (0, 4 - texts.shape[1]), value=END)
    shifted = torch.cat((torch.full((len(texts), 1), BEGIN), texts[:, :-1]), 1)
    steps = F.log_softmax(model(source, shifted), -1).gather(2, texts.unsqueeze(-1)).squeeze(-1)
    over = (texts == END).cumsum(1) - (texts == END).long() > 0
    return steps.masked_fill(over, 0).sum(1)


@EACH
@pytest.mark.catalogue("S4-092")
def test_the_loss_of_a_given_target_is_that_of_its_steps(form: str) -> None:
    model, source, shifted = built(form), sources(), targets()
    whole = model(source, shifted)
    assert whole.shape == (4, 5, WRITTEN)
    read = model.read(source)
    states, found = model.start(read.summary), []
    for at in range(5):
        logits, states = model.write(shifted[:, at : at + 1], states, read)
        found.append(logits[:, 0])
    torch.testing.assert_close(torch.stack(found, 1), whole, atol=1e-5, rtol=0)
    y = torch.randint(3, WRITTEN, (4, 5))
    stepwise = sum(F.cross_entropy(logits, y[:, at], reduction="sum") for at, logits in enumerate(found))
    torch.testing.assert_close(F.cross_entropy(whole.flatten(0, 1), y.flatten(), reduction="sum"), stepwise)
    changed = shifted.clone()
    changed[:, 3:] = 3
    assert torch.equal(model(source, changed)[:, :3], whole[:, :3])  # no symbol is seen before its turn


@pytest.mark.catalogue("S4-092")
@pytest.mark.parametrize("form", ["none", "none_lstm"])
def test_without_attention_nothing_but_the_summary_reaches_the_decoder(form: str) -> None:
    model, source, shifted = built(form), sources(), targets()
    read = model.read(source)
    assert read.memory is read.keys is read.mask is None
    assert read.summary.shape == (4, FORMS[form].get("layers", 1), 8)
    alone = model.write(shifted, model.start(read.summary), Read(read.summary))[0]
    assert torch.equal(alone, model(source, shifted))
    other = model(source.flip(0), shifted)
    assert (other - alone).abs().amax((1, 2)).min() > 1e-4
    model.encoder.forward = lambda given: (torch.randn(4, 7, 8), read.summary, None)  # type: ignore[method-assign]
    assert torch.equal(model(source.flip(0), shifted), alone)


@EACH
def test_the_summary_is_where_each_direction_ends(form: str) -> None:
    model, source = built(form), sources()
    summary = model.read(source).summary
    for row, length in enumerate(LENGTHS):
        out = model.encoder.read(source[row : row + 1, :length])[0]
        for number, layer in enumerate(model.encoder.layers):
            first, (end, *_) = layer.cell(out)  # type: ignore[operator]
            ends, outs = [end], [first]
            if layer.back is not None:
                second, (end, *_) = layer.back(out.flip(1))  # type: ignore[operator]
                ends, outs = [*ends, end], [first, second.flip(1)]
            torch.testing.assert_close(summary[row, number], torch.cat(ends, -1)[0], atol=1e-6, rtol=0)
            out = torch.cat(outs, -1)


@EACH
def test_padding_of_the_source_and_of_the_target_never_matters(form: str) -> None:
    model, source, shifted = built(form), sources(), targets()
    y = model(source, shifted)
    for row, length in enumerate(LENGTHS):
        alone = model(source[row : row + 1, :length], shifted[row : row + 1])
        torch.testing.assert_close(alone, y[row : row + 1], atol=1e-5, rtol=0)
    padded = shifted.clone()
    padded[:, 3:] = PADDING
    assert torch.equal(model(source, padded)[:, :3], y[:, :3])
    assert model(torch.zeros_like(source), shifted).isfinite().all()


@EACH
def test_greedy_search_reads_the_source_once_and_takes_the_likeliest_symbol(form: str) -> None:
    model, source, calls = built(form), sources(), []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    made = model.generate(source, torch.zeros(0), how=Decoding(length=4, temperature=0))
    assert calls == [1]
    assert torch.equal(made, plainly(model, source, 4)[:, : made.shape[1]])
    assert made.shape[1] == 4 or (made == END).any(1).all()
    assert torch.equal(model.generate(source, how=Decoding(length=4, temperature=0, beams=1)), made)


@EACH
def test_beams_find_texts_at_least_as_likely_and_all_beams_the_likeliest(form: str) -> None:
    model, source = built(form), sources()
    greedy = score(model, source, model.generate(source, how=Decoding(length=4, temperature=0)))
    best = score(model, source, model.generate(source, how=Decoding(length=4, beams=WRITTEN**3)))
    assert (best >= greedy - 1e-5).all()
    every = torch.cartesian_prod(*[torch.arange(WRITTEN)] * 4)
    ended = (every == END).cumsum(1) - (every == END).long() > 0
    every = every[((every == END) | ~ended).all(1)]
    for row in range(4):
        likeliest = score(model, source[row].expand(len(every), -1), every).max()
        assert best[row].item() == pytest.approx(likeliest.item(), abs=1e-4)


def test_some_beams_are_on_the_whole_better_than_none() -> None:
    found = []
    for seed in range(8):
        torch.manual_seed(seed)
        model, source = built(), sources()
        for beams in (1, 4):
            made = model.generate(source, how=Decoding(length=4, temperature=0, beams=beams))
            found.append(score(model, source, made).detach().mean())
    greedy, four = torch.stack(found).view(8, 2).unbind(1)
    assert four.mean() > greedy.mean()


@pytest.mark.catalogue("S4-093")
def test_weights_are_a_softmax_over_the_places_and_padding_has_none() -> None:
    attention = Additive(5, 6, 4)
    queries, places = torch.randn(4, 3, 5), torch.randn(4, 7, 6)
    mask = torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(1)
    weights = attention.weights(queries, attention.key(places), mask)
    assert weights.shape == (4, 3, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 3), atol=1e-6, rtol=0)
    assert (weights.masked_select(~mask.unsqueeze(1)) == 0).all() and (weights >= 0).all()
    w, u, b = attention.query.weight, attention.key.weight, attention.key.bias
    for row, length in enumerate(LENGTHS):
        for step in range(3):
            energies = [
                attention.score @ torch.tanh(w @ queries[row, step] + u @ m + b) for m in places[row, :length]
            ]
            expected = torch.stack(energies).softmax(0)
            torch.testing.assert_close(weights[row, step, :length], expected, atol=1e-6, rtol=0)
            seen = (expected.unsqueeze(-1) * places[row, :length]).sum(0)
            context = attention(queries, places, attention.key(places), mask)[row, step]
            torch.testing.assert_close(context, seen, atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-093")
def test_what_attention_sees_does_not_depend_on_the_order_of_the_places() -> None:
    attention = Additive(5, 6, 4)
    queries, places = torch.randn(2, 3, 5), torch.randn(2, 7, 6)
    order = torch.tensor([2, 0, 1, 5, 6, 4, 3])
    mask = torch.rand(2, 7) > 0.3
    seen = attention(queries, places, attention.key(places), mask)
    moved = places[:, order]
    torch.testing.assert_close(
        attention(queries, moved, attention.key(moved), mask[:, order]), seen, atol=1e-6, rtol=0
    )


@pytest.mark.catalogue("S4-093")
def test_each_symbol_is_chosen_from_the_state_before_it_and_what_that_looks_at() -> None:
    model, source, shifted = built(), sources(), targets()
    assert model.attention is not None and model.join is not None
    read = model.read(source)
    weights = model.align(source, shifted)
    assert weights.shape == (4, 5, 7) and (weights[1, :, 4:] == 0).all()
    z, _, _ = model.decoder(shifted, model.start(read.summary))
    assert read.memory is not None
    seen = torch.einsum("bij,bjc->bic", weights, read.memory)
    expected = model.head(torch.tanh(model.join(torch.cat((z, seen), -1))))
    torch.testing.assert_close(model(source, shifted), expected, atol=1e-5, rtol=0)
    with pytest.raises(PegboardError, match="attention: none"):
        built("none").align(source, shifted)


def test_what_hangs_on_the_weights_of_attention_is_seen() -> None:
    model, source, shifted = built(), sources(), targets()
    y, seen = model(source, shifted), []
    assert model.attention is not None

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x

    model.attention.peg.add_module("watch", Watch())
    assert torch.equal(model(source, shifted), y)
    assert torch.equal(seen[0][:, 0], model.align(source, shifted)) and seen[0].shape == (4, 1, 5, 7)


@EACH
def test_with_full_teacher_forcing_training_reads_the_target_as_it_is(form: str) -> None:
    model, source, shifted = built(form), sources(), targets()
    before = torch.get_rng_state()
    assert torch.equal(model.train()(source, shifted), model.eval()(source, shifted))
    assert torch.equal(torch.get_rng_state(), before)  # and nothing is drawn


@EACH
def test_without_teacher_forcing_the_model_reads_its_own_guesses(form: str) -> None:
    model, source, shifted = built(form, teacher_forcing=0.0), sources(), targets()
    shifted[1, 3:] = PADDING
    guesses = model(source, shifted).argmax(-1)
    own = torch.cat((shifted[:, :1], guesses[:, :-1]), 1)
    own[1, 3:] = PADDING  # a text is not made longer
    assert not torch.equal(own, shifted)
    expected = model(source, own)
    found = model.train()(source, shifted)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert all(grad is not None for grad in torch.autograd.grad(found.sum(), list(model.parameters())))
    assert torch.equal(model.eval()(source, shifted), model.eval()(source, shifted))


def test_a_share_of_teacher_forcing_is_a_share_of_the_symbols() -> None:
    model = built(teacher_forcing=0.7)
    source, shifted = torch.randint(3, READ, (400, 7)), torch.full((400, 5), 3)
    shifted[:, 0] = BEGIN
    read = model.read(source)
    model.head.bias.data[4] = 100  # it guesses 4 wherever it may
    made = model._own(shifted, model.start(read.summary), read)
    assert (made[:, 0] == BEGIN).all() and set(made[:, 1:].unique().tolist()) == {3, 4}
    share = (made[:, 1:] == 3).float().mean().item()
    assert share == pytest.approx(0.7, abs=4 * math.sqrt(0.21 / 1600))


@EACH
def test_every_parameter_gets_a_gradient(form: str) -> None:
    model = built(form).train()
    model(sources(), targets()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_sizes_that_do_not_fit_are_refused() -> None:
    text = Tokens(5, 4, 0, 1, 2)
    with pytest.raises(ValueError, match="hidden 7 is odd"):
        Seq2Seq(text, text, 5, hidden=7)
    with pytest.raises(PegboardError, match="how many symbols there are"):
        Seq2Seq(Tokens(None), text, 5)
    with pytest.raises(PegboardError, match="how many symbols the target has"):
        build_seq2seq(Config(), Context(spec=DataSpec((text, text), text), outputs=None))
