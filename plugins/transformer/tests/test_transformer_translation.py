"""Encoder and decoder together: teacher forcing, padding, greedy and beam search."""

from __future__ import annotations

import itertools
from pathlib import Path

import pegboard
import pytest
import torch
from pegboard import Context, DataSpec, Decoding, Tokens
from pegboard_transformer import Translation as Config
from pegboard_transformer import build_translation
from pegboard_transformer.translation import Translation
from sweeps import first_of_each
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("lean")

PADDING, BEGIN, END = 0, 1, 2
READ, WRITTEN = 9, 6  # symbols of the source and of the target


def built(read: int = READ, length: int = 5, **fields: object) -> Translation:
    target = Tokens(WRITTEN, length, PADDING, BEGIN, END)
    spec = DataSpec((Tokens(read, 7, PADDING), target), target)
    config = Config(**{"layers": 2, "width": 16, "heads": 4, **fields})  # type: ignore[arg-type]
    model = build_translation(config, Context(spec=spec, outputs=WRITTEN))
    assert isinstance(model, Translation)
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    return model.eval()


def sources() -> Tensor:
    tokens = torch.randint(3, READ, (4, 7))
    return tokens.masked_fill(torch.arange(7) >= torch.tensor([[7], [4], [1], [6]]), PADDING)


def plainly(model: Translation, source: Tensor, count: int) -> Tensor:
    """The likeliest symbols by a pass over the whole text for each."""
    text = torch.full((len(source), 1), BEGIN)
    for _ in range(count):
        symbols = model(source, text)[:, -1].argmax(-1)
        ended = (text == END).any(1)
        text = torch.cat((text, torch.where(ended, END, symbols).unsqueeze(1)), 1)
    return text[:, 1:]


MANNERS: list[dict[str, object]] = [
    {},
    {"norm": "post", "positions": "learned", "tied": False},
    {"positions": "rotary", "decoder_layers": 1},
]


@pytest.mark.catalogue("S4-105")
@pytest.mark.parametrize("manner", MANNERS)
def test_generation_reads_the_source_once_and_is_that_without_a_cache(manner: dict[str, object]) -> None:
    model, source = built(**manner | {"tied": False}), sources()
    for name, p in model.named_parameters():  # so that the likeliest symbols differ
        p.data = torch.randn_like(p) if p.dim() > 1 else 0.0 * p + name.endswith("norm.weight")
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    made = model.generate(source, torch.zeros(0), how=Decoding(length=5, temperature=0))
    assert calls == [1]
    expected = plainly(model, source, 5)
    assert torch.equal(made, expected[:, : made.shape[1]]) and len(made.unique(dim=0)) > 2
    assert made.shape[1] == 5 or (made == END).any(1).all()


@pytest.mark.catalogue("S4-105")
def test_generation_ends_at_the_end_symbol_or_the_length_and_at_the_last_position() -> None:
    model = built()
    for weight, length in ((100.0, 1), (-100.0, 4)):
        ending = torch.full((WRITTEN,), 0.0)
        ending[END] = weight
        model.logits._modules["lean"] = Lean(ending)
        made = model.generate(sources(), how=Decoding(length=4, temperature=0))
        assert made.shape == (4, length) and ((made == END).all() if length == 1 else (made != END).all())
    learned = built(positions="learned")
    learned.logits._modules["lean"] = Lean(ending)
    assert learned.generate(sources(), how=Decoding(length=50)).shape == (4, 5)


class Lean(nn.Module):
    """Adds to the logits."""

    def __init__(self, by: Tensor) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


@pytest.mark.parametrize("manner", MANNERS)
def test_padding_of_the_source_and_of_the_target_never_matters(manner: dict[str, object]) -> None:
    model, source = built(**manner), sources()
    target = torch.randint(3, WRITTEN, (4, 5))
    target[:, 0] = BEGIN
    y = model(source, target)
    assert y.shape == (4, 5, WRITTEN)
    torch.testing.assert_close(model(source[1:2, :4], target[1:2]), y[1:2], atol=1e-5, rtol=0)
    padded = target.clone()
    padded[:, 3:] = PADDING
    assert torch.equal(model(source, padded)[:, :3], y[:, :3])
    assert model(torch.zeros_like(source), target).isfinite().all()
    assert (model(source[:, [1, 0, *range(2, 7)]], target) - y)[0].abs().max() > 1e-4


def test_beams_that_follow_all_texts_find_the_likeliest() -> None:
    model, source = built(), sources()
    found = model.generate(source, how=Decoding(length=3, beams=WRITTEN**2))
    every = torch.cartesian_prod(*[torch.arange(WRITTEN)] * 3)
    ended = (every == END).cumsum(1) - (every == END).long() > 0  # places after the end
    every = every[((every == END) | ~ended).all(1)]
    ended = (every == END).cumsum(1) - (every == END).long() > 0
    shifted = torch.cat((torch.full((len(every), 1), BEGIN), every[:, :-1]), 1)
    for row in range(4):
        scores = F.log_softmax(model(source[row].expand(len(every), -1), shifted), -1)
        total = scores.gather(2, every.unsqueeze(-1)).squeeze(-1).masked_fill(ended, 0).sum(1)
        best = every[total.argmax()]
        assert torch.equal(F.pad(found[row], (0, 3 - found.shape[1]), value=END), best)


def test_one_vocabulary_may_share_one_embedding() -> None:
    model = built(read=WRITTEN, shared=True)
    assert not any("source_embed" in name for name in model.state_dict())
    apart = built(read=WRITTEN)
    assert sum(p.numel() for p in apart.parameters()) - sum(p.numel() for p in model.parameters()) == 6 * 16
    source = sources().clamp(max=WRITTEN - 1)
    assert model(source, torch.full((4, 2), BEGIN)).shape == (4, 2, WRITTEN)
    with pytest.raises(ValueError, match="9 and 6 symbols"):
        built(shared=True)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_weights_of_torch_transformers_are_adopted() -> None:
    reference = nn.Transformer(16, 4, 2, 2, 64, 0.0, batch_first=True, norm_first=True)
    for p in reference.parameters():
        p.data += 0.1 * torch.randn_like(p)
    model, source = built(), sources()
    left = model.load_state_dict(model.adopt(reference.state_dict()), strict=False)
    assert not left.unexpected_keys and all("embed" in name for name in left.missing_keys)
    target = torch.randint(3, WRITTEN, (4, 5))
    pads = source == PADDING
    assert model.source_embed is not None
    read = reference(
        model.source_embed(source),
        model.embed(target),
        tgt_mask=torch.ones(5, 5).triu(1).bool(),
        src_key_padding_mask=pads,
        memory_key_padding_mask=pads,
    )
    expected = F.linear(read, model.embed.read.weight)  # type: ignore[arg-type]
    torch.testing.assert_close(model(source, target), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.catalogue("S4-105")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_a_trained_model_copies_whole_texts(seed: int, tmp_path: Path) -> None:
    from pegboard_datasets.copying import copies

    run = pegboard.train(
        {
            "seed": seed,
            "data": {"name": "copying", "samples": 2000, "length": 4, "shortest": 2, "batch_size": 50},
            "model": {"name": "translation", "layers": 1, "width": 32, "heads": 2},
            "optimizer": {"name": "adam", "lr": 0.01, "schedule": "linear"},
            "trainer": {"epochs": 8},
            "probes": {"bleu": {"beams": 2}},
        },
        root=tmp_path,
        quiet=True,
    )
    assert run.figures["bleu/test"] > 95 and run.figures["bleu/test_exact"] >= 0.95
    source, copy = copies(200, 8, 4, 2, generator=torch.Generator().manual_seed(99))
    expected = copy.masked_fill(copy == PADDING, END)
    for how in (Decoding(length=5, temperature=0), Decoding(length=5, beams=3)):
        made = run.model.generate(source, how=how)  # type: ignore[operator]
        made = F.pad(made, (0, 5 - made.shape[1]), value=END)
        assert (made == expected).all(1).float().mean() >= 0.95


def test_a_student_may_learn_the_texts_that_its_teacher_writes(tmp_path: Path) -> None:
    def run(**tricks: object) -> pegboard.Run:
        given = {
            "data": {"name": "copying", "samples": 200, "length": 4, "shortest": 2, "batch_size": 50},
            "model": {"name": "translation", "layers": 1, "width": 16, "heads": 2},
            "optimizer": {"name": "adam", "lr": 0.01},
            "trainer": {"steps": 3, "device": "cpu"},
            "regularizers": tricks,
        }
        return pegboard.train(given, root=tmp_path, quiet=True)

    teacher = run()
    learned = [
        run(distillation={"teacher": str(teacher.folder), "alpha": 1.0, "level": level}).model.state_dict()
        for level in ("output", "sequence")
    ]
    states = [teacher.model.state_dict(), *learned]
    for one, two in itertools.combinations(states, 2):
        assert any(not torch.equal(one[name], two[name]) for name in one)
