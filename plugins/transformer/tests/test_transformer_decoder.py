"""The language model: what it sees, and that generation with a cache is generation without."""

from __future__ import annotations

import math

import pytest
import torch
from pegboard import Context, DataSpec, Decoding, Tokens
from pegboard_transformer import Decoder as Config
from pegboard_transformer import build_decoder
from pegboard_transformer.decoder import Decoder
from torch import Tensor, nn
from torch.nn import functional as F

KINDS = ("learned", "sinusoidal", "rotary", "none")
VOCAB, LENGTH = 11, 8


def built(padding: int = -1, end: int = -1, **fields: object) -> Decoder:
    tokens = Tokens(VOCAB, LENGTH, padding, end=end)
    config = Config(**{"layers": 2, "width": 16, "heads": 4, **fields})  # type: ignore[arg-type]
    model = build_decoder(config, Context(spec=DataSpec((tokens,), tokens), outputs=VOCAB))
    assert isinstance(model, Decoder)
    for p in model.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return model.eval()


def lively(**fields: object) -> Decoder:
    """One whose likeliest symbols differ from place to place and from text to text."""
    model = built(tied=False, **fields)  # type: ignore[arg-type]
    for name, p in model.named_parameters():
        p.data = torch.randn_like(p) if p.dim() > 1 else 0.0 * p + name.endswith("norm.weight")
    return model


def plainly(model: Decoder, prompt: Tensor, count: int) -> Tensor:
    """The likeliest symbols by a pass over the whole text for each, cut to the positions there are."""
    text = prompt
    for _ in range(count):
        read = text[:, -LENGTH:] if model.limited else text
        text = torch.cat((text, model(read)[:, -1].argmax(-1, keepdim=True)), 1)
    return text[:, prompt.shape[1] :]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", KINDS)
def test_the_cache_changes_nothing_within_the_length_and_beyond(positions: str, norm: str) -> None:
    model, said = lively(positions=positions, norm=norm), set()
    for places in (1, 5, LENGTH, LENGTH + 4):
        prompt = torch.randint(VOCAB, (3, places))
        made = model.generate(prompt, how=Decoding(length=12, temperature=0))
        assert torch.equal(made, plainly(model, prompt, 12))
        said |= set(made.flatten().tolist())
    assert len(said) > 3


@pytest.mark.parametrize("positions", KINDS)
def test_logits_of_every_step_are_those_of_the_whole_pass(positions: str) -> None:
    model, text = built(positions=positions), torch.randint(VOCAB, (2, 14))
    whole = model(text[:, :LENGTH] if model.limited else text)
    logits, state = model._begin(text[:, :3], None)
    for place in range(3, whole.shape[1]):
        torch.testing.assert_close(logits, whole[:, place - 1], atol=1e-5, rtol=0)
        logits, state = model._step(text[:, place], state)


@pytest.mark.parametrize("positions", KINDS)
def test_prompts_of_different_lengths_go_on_as_each_would_alone(positions: str) -> None:
    model = lively(padding=0, positions=positions)
    lengths = torch.tensor([6, 3, 1, 10])
    prompt = torch.randint(1, VOCAB, (4, 10)).masked_fill(torch.arange(10) >= lengths.unsqueeze(1), 0)
    made = model.generate(prompt, how=Decoding(length=9, temperature=0))
    for row, length in enumerate(lengths.tolist()):
        alone = model.generate(prompt[row : row + 1, :length], how=Decoding(length=9, temperature=0))
        assert torch.equal(made[row : row + 1], alone)
    assert len(made.unique()) > 3 and len(made.unique(dim=0)) == 4


def test_a_place_sees_what_is_before_it_and_padding_changes_no_place_before_it() -> None:
    for positions in KINDS:
        model, text = built(padding=0, positions=positions), torch.randint(1, VOCAB, (2, LENGTH))
        y = model(text)
        changed = torch.cat((text[:, :5], torch.zeros(2, 3, dtype=torch.long)), 1)
        assert torch.equal(model(changed)[:, :5], y[:, :5])
        torch.testing.assert_close(model(text[:, :5]), y[:, :5], atol=1e-5, rtol=0)
        assert model(torch.zeros_like(text)).isfinite().all()


def test_beams_reorder_the_cache_and_find_the_likeliest_text() -> None:
    model, prompt = built(positions="rotary"), torch.randint(VOCAB, (2, 3))
    found = model.generate(prompt, how=Decoding(length=3, beams=VOCAB**2))
    every = torch.cartesian_prod(*[torch.arange(VOCAB)] * 3)
    for row in range(2):
        text = torch.cat((prompt[row].expand(len(every), -1), every), 1)
        scores = F.log_softmax(model(text[:, :-1])[:, 2:], -1).gather(2, every.unsqueeze(-1)).sum((1, 2))
        assert torch.equal(found[row], every[scores.argmax()])


def test_drawn_symbols_follow_the_model_and_stop_at_the_end() -> None:
    model, prompt = built(end=4), torch.randint(VOCAB, (1, 4)).expand(4000, -1)
    how = Decoding(length=3, temperature=0.7, top_k=5)
    made = model.generate(prompt, how=how, generator=torch.Generator().manual_seed(0))
    chances = (model(prompt[:1])[0, -1] / 0.7).softmax(0)
    kept = torch.where(chances >= chances.topk(5).values[-1], chances, 0)
    kept = kept / kept.sum()
    share = torch.bincount(made[:, 0], minlength=VOCAB) / 4000
    assert ((share - kept).abs() <= 4 * (kept * (1 - kept) / 4000).sqrt() + 1e-9).all()
    after = (made[:, :-1] == 4).cummax(1).values if made.shape[1] > 1 else made[:, :0]
    assert (made[:, 1:][after.bool()] == 4).all()


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_has_no_weights_of_its_own(tied: bool) -> None:
    model = built(tied=tied)
    assert ("head.weight" in model.state_dict()) is not tied
    logits = model(torch.randint(VOCAB, (2, 5)))
    F.cross_entropy(logits.flatten(0, 1), torch.randint(VOCAB, (10,))).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_initial_weights_are_those_of_gpt2() -> None:
    torch.manual_seed(0)
    tokens = Tokens(200, 50)
    context = Context(spec=DataSpec((tokens,), tokens), outputs=200)
    model = build_decoder(Config(layers=8), context)
    for name, p in model.named_parameters():
        if name.endswith(("out.weight", "down.weight")):
            assert p.std().item() == pytest.approx(0.02 / 4, rel=0.05)
        elif p.dim() == 2:
            assert p.std().item() == pytest.approx(0.02, rel=0.05)
        else:
            assert torch.equal(p, torch.full_like(p, float("norm.weight" in name)))
    logits = model(torch.randint(200, (4, 50)))
    assert F.cross_entropy(logits.flatten(0, 1), torch.randint(200, (200,))).item() == pytest.approx(
        math.log(200), rel=0.02
    )


class Gpt2(nn.Module):
    """GPT-2 as it was published, in Hugging Face's names: weights lie (inputs, outputs)."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers, self.heads = layers, heads
        sizes = {"wte": (VOCAB, width), "wpe": (LENGTH, width)}
        for n in range(layers):
            maps = {"attn.c_attn": 3 * width, "attn.c_proj": width, "mlp.c_fc": 4 * width}
            sizes |= {f"h.{n}.{name}": (width, outputs) for name, outputs in maps.items()}
            sizes[f"h.{n}.mlp.c_proj"] = (4 * width, width)
            sizes |= {f"h.{n}.ln_1": (width,), f"h.{n}.ln_2": (width,)}  # type: ignore[dict-item]
        sizes["ln_f"] = (width,)  # type: ignore[assignment]
        self.state = {f"transformer.{name}.weight": torch.randn(size) / 4 for name, size in sizes.items()}
        for name, size in sizes.items():
            if name not in ("wte", "wpe"):
                self.state[f"transformer.{name}.bias"] = torch.randn(size[-1]) / 4
        self.state["transformer.h.0.attn.bias"] = torch.ones(1, 1, LENGTH, LENGTH).tril()
        self.state["lm_head.weight"] = self.state["transformer.wte.weight"]

    def at(self, name: str) -> tuple[Tensor, Tensor]:
        return self.state[f"transformer.{name}.weight"], self.state[f"transformer.{name}.bias"]

    def map(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.at(name)
        return x @ weight + bias

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], *self.at(name))

    def forward(self, tokens: Tensor) -> Tensor:
        wte, wpe = self.state["transformer.wte.weight"], self.state["transformer.wpe.weight"]
        x = wte[tokens] + wpe[: tokens.shape[1]]
        for n in range(self.layers):
            parts = self.map(self.norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn").chunk(3, -1)
            q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            later = torch.ones(scores.shape[-2:]).triu(1).bool()
            read = scores.masked_fill(later, -math.inf).softmax(-1) @ v
            x = x + self.map(read.transpose(1, 2).flatten(2), f"h.{n}.attn.c_proj")
            inner = F.gelu(self.map(self.norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc"), approximate="tanh")
            x = x + self.map(inner, f"h.{n}.mlp.c_proj")
        return self.norm(x, "ln_f") @ wte.t()


@pytest.mark.parametrize("prefix", ["transformer.", ""])
@pytest.mark.parametrize("tied", [True, False])
def test_weights_of_gpt2_are_adopted(tied: bool, prefix: str) -> None:
    reference, model = Gpt2(2, 16, 4), built(tied=tied, activation="gelu_tanh")
    given = {name.replace("transformer.", prefix): t for name, t in reference.state.items()}
    model.load_state_dict(model.adopt(given))
    tokens = torch.randint(VOCAB, (2, LENGTH))
    torch.testing.assert_close(model(tokens), reference(tokens), atol=1e-4, rtol=1e-4)
    assert model.adopt(model.state_dict()).keys() == model.state_dict().keys()


def test_the_published_size_of_gpt2() -> None:
    tokens = Tokens(50_257, 1024)
    with torch.device("meta"):
        model = build_decoder(
            Config(layers=12, width=768, heads=12), Context(spec=DataSpec((tokens,), tokens), outputs=50_257)
        )
    assert sum(p.numel() for p in model.parameters()) == 124_439_808
