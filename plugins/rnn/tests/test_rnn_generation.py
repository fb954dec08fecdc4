"""A model of the next symbol: the texts it writes, what they cost, and the probabilities behind them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Classes, Context, DataSpec, Decoding, PegboardError, Series, Spec, Tokens
from pegboard_rnn import Rnn as Config
from pegboard_rnn import build_rnn
from pegboard_rnn.model import Rnn
from torch import Tensor
from torch.nn import functional as F

VOCAB = 4
CELLS = ("elman", "lstm", "gru", "mingru", "lru")
LIKELIEST = Decoding(length=9, temperature=0)


def built(padding: int = -1, end: int = -1, target: Spec | None = None, **fields: Any) -> Rnn:
    text = Tokens(VOCAB, 6, padding, end=end)
    target = text if target is None else target
    config = Config(**{"hidden": 8, "layers": 2, **fields})
    model = build_rnn(config, Context(spec=DataSpec((text,), target), outputs=target.size))
    assert isinstance(model, Rnn)
    for p in model.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return model.eval()


def plainly(model: Rnn, prompt: Tensor, count: int) -> Tensor:
    """The likeliest symbols by a pass over the whole text for each."""
    text = prompt
    for _ in range(count):
        text = torch.cat((text, model(text)[:, -1].argmax(-1, keepdim=True)), 1)
    return text[:, prompt.shape[1] :]


@pytest.mark.parametrize("cell", CELLS)
def test_symbols_step_by_step_are_those_of_whole_passes(cell: str) -> None:
    model = built(cell=cell)
    for length in (1, 5, 11):
        prompt = torch.randint(VOCAB, (3, length))
        assert torch.equal(model.generate(prompt, how=LIKELIEST), plainly(model, prompt, 9))


@pytest.mark.parametrize("cell", CELLS)
def test_logits_of_steps_are_those_of_the_whole_and_states_never_grow(cell: str) -> None:
    model, text = built(cell=cell), torch.randint(VOCAB, (2, 40))
    whole, states, held = model(text), None, set()
    with torch.no_grad():
        for at in range(40):
            logits, states = model.step(text[:, at], states)
            torch.testing.assert_close(logits, whole[:, at], atol=1e-5, rtol=0)
            held.add(sum(part.untyped_storage().nbytes() for state in states for part in state))
        assert len(held) == 1
        _, prompted = model._prompt(text)  # what was read at once is not kept either
    assert {sum(part.untyped_storage().nbytes() for state in prompted for part in state)} == held


@pytest.mark.parametrize("cell", CELLS)
def test_prompts_of_different_lengths_go_on_as_each_would_alone(cell: str) -> None:
    model = built(padding=0, cell=cell)
    lengths = torch.tensor([6, 3, 2, 10])
    prompt = torch.randint(1, VOCAB, (4, 10)).masked_fill(torch.arange(10) >= lengths.unsqueeze(1), 0)
    made = model.generate(prompt, how=LIKELIEST)
    for row, length in enumerate(lengths.tolist()):
        alone = model.generate(prompt[row : row + 1, :length], how=LIKELIEST)
        assert torch.equal(made[row : row + 1], alone)


@pytest.mark.parametrize("padding", [-1, 0])
def test_a_prompt_is_read_at_once_as_far_as_all_texts_last(padding: int) -> None:
    model, calls = built(padding), []
    model.layers[0].register_forward_hook(lambda _, given, __: calls.append(given[0].shape[1]))
    model.generate(torch.randint(1, VOCAB, (3, 7)), how=Decoding(length=4, temperature=0))
    assert calls == [7, 1, 1, 1]


@pytest.mark.parametrize("cell", CELLS)
def test_beams_find_the_likeliest_text(cell: str) -> None:
    model, prompt = built(cell=cell), torch.randint(VOCAB, (2, 3))
    found = model.generate(prompt, how=Decoding(length=3, beams=VOCAB**2))
    every = torch.cartesian_prod(*[torch.arange(VOCAB)] * 3)
    for row in range(2):
        text = torch.cat((prompt[row].expand(len(every), -1), every), 1)
        scores = F.log_softmax(model(text[:, :-1])[:, 2:], -1).gather(2, every.unsqueeze(-1)).sum((1, 2))
        assert torch.equal(found[row], every[scores.argmax()])


def test_a_text_stops_at_its_end() -> None:
    model = built(end=2)
    model.head.bias.data[2] = 100
    made = model.generate(torch.randint(VOCAB, (3, 4)), how=LIKELIEST)
    assert made.tolist() == [[2]] * 3


MISFITS: list[tuple[Spec | None, dict[str, Any]]] = [
    (Classes(3), {}),
    (Tokens(3, 6), {}),
    (Tokens(3, 6), {"bidirectional": True}),
    (Series(6, 2), {}),
]


@pytest.mark.parametrize(("target", "fields"), MISFITS)
def test_a_model_that_predicts_no_next_symbol_writes_nothing(
    target: Spec | None, fields: dict[str, Any]
) -> None:
    with pytest.raises(PegboardError, match="does not continue texts"):
        built(target=target, **fields).generate(torch.randint(VOCAB, (2, 3)), how=LIKELIEST)
    with pytest.raises(PegboardError, match="at least one symbol"):
        built().generate(torch.zeros(2, 0, dtype=torch.long), how=LIKELIEST)


@pytest.mark.catalogue("S4-091")
@pytest.mark.parametrize("cell", CELLS)
def test_probabilities_of_all_texts_sum_to_one(cell: str) -> None:
    model = built(cell=cell)
    every = torch.tensor(list(itertools.product(range(VOCAB), repeat=3)))
    assert len(every) == 64
    given = torch.zeros(64, 1, dtype=torch.long)  # the symbol before the first
    shifted = torch.cat((given, every[:, :-1]), 1)
    steps = F.log_softmax(model(shifted), -1).gather(2, every.unsqueeze(-1)).squeeze(-1)
    assert steps.sum(1).exp().sum().item() == pytest.approx(1.0, abs=1e-6)
    one, states = [], None  # the same, each symbol after those before it
    for at in range(3):
        logits, states = model.step(shifted[:, at], states)
        one.append(F.log_softmax(logits, -1).gather(1, every[:, at : at + 1]))
    torch.testing.assert_close(torch.cat(one, 1), steps, atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-091")
def test_the_loss_of_texts_is_the_mean_over_their_symbols_and_a_uniform_model_knows_nothing() -> None:
    from pegboard_objectives import CrossEntropy, pegboard_objectives

    text = Tokens(VOCAB, 6, 0)
    context = Context(spec=DataSpec((text,), text), outputs=VOCAB)
    part = next(part for part in pegboard_objectives() if part.name == "cross_entropy")
    objective = part.build(CrossEntropy(), context)
    model, x = built(padding=0), torch.randint(1, VOCAB, (5, 6))
    y = torch.randint(1, VOCAB, (5, 6)).masked_fill(
        torch.arange(6) >= torch.tensor([[6], [3], [1], [5], [2]]), 0
    )
    output = model(x)
    steps = -F.log_softmax(output, -1).gather(2, y.unsqueeze(-1)).squeeze(-1)
    expected = steps[y != 0].sum() / 17
    torch.testing.assert_close(objective.loss(output, y), expected)
    uniform = torch.zeros_like(output)
    assert objective.loss(uniform, y).exp().item() == pytest.approx(VOCAB)
    asked = part.build(CrossEntropy(metrics=("perplexity",)), context)
    for given, undecided in ((uniform, VOCAB), (output, expected.exp().item())):
        metric = asked.metrics()["perplexity"]
        metric.update(given[:2], y[:2])  # the sum over all batches, not the mean of their figures
        metric.update(given[2:], y[2:])
        assert metric.compute().item() == pytest.approx(undecided, rel=1e-5)


def test_a_trained_model_continues_text_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pegboard.cli import main

    local = str(Path(__file__).with_name("sequences_plugin.py"))
    run = pegboard.train(
        {
            "data": {"name": "turns", "batch_size": 16},
            "model": {"name": "rnn", "cell": "gru", "hidden": 16},
            "optimizer": {"name": "adam", "lr": 0.05},
            "trainer": {"epochs": 8},
            "plugins": {"local": [local]},
        },
        root=tmp_path,
        quiet=True,
    )
    capsys.readouterr()
    words = ["sample", str(run.folder), "--prompt", "ab", "--length", "10", "--local", local]
    for more in (["--temperature", "0"], ["--beams", "3"]):
        assert main([*words, *more]) == 0
        assert "abcdabcdabcd" in capsys.readouterr().out
