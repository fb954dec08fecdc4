"""Architectures compute what transformers computes with them, and mistakes are told in one message."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Classes, Context, DataSpec, PegboardError, Tokens, pegs, plan, train
from pegboard.testing import partner_config
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from pegboard_example_transformers import Transformers, build

ARCHITECTURES = ("bert", "distilbert", "roberta", "electra", "gpt2", "llama")
EACH = pytest.mark.parametrize("architecture", ARCHITECTURES)
TOKENS = {"name": "partners:partner", "inputs": "tokens", "batch_size": 4}
PAD = 3


def classifier(padding: int = PAD, **fields: Any) -> nn.Module:
    torch.manual_seed(0)
    given = {"width": 8, "layers": 2, "heads": 2, **fields}
    context = Context(spec=DataSpec((Tokens(11, 9, padding),), Classes(4)), outputs=4)
    model = build(Transformers(**given), context).eval()
    for parameter in model.parameters():  # large enough for every symbol to matter
        nn.init.normal_(parameter)
    return model


def sentences() -> Tensor:
    """Three samples of different lengths, the padding behind them."""
    tokens = torch.randint(4, 11, (3, 9), generator=torch.Generator().manual_seed(1))
    for row, length in enumerate((9, 5, 2)):
        tokens[row, length:] = PAD
    return tokens


@EACH
def test_logits_are_those_of_transformers(architecture: str) -> None:
    model = classifier(architecture=architecture)
    own = AutoModelForSequenceClassification.from_config(copy.deepcopy(model.network.config))
    own.set_attn_implementation("eager")
    own.load_state_dict(model.network.state_dict())
    tokens = sentences()
    expected = own.eval()(input_ids=tokens, attention_mask=(tokens != PAD).long()).logits
    assert expected.shape == (3, 4)
    torch.testing.assert_close(model(tokens), expected, atol=1e-5, rtol=1e-5)


@EACH
def test_padding_changes_nothing(architecture: str) -> None:
    model, tokens = classifier(architecture=architecture), sentences()
    for row, length in enumerate((9, 5, 2)):
        alone = model(tokens[row : row + 1, :length])
        torch.testing.assert_close(model(tokens)[row : row + 1], alone, atol=1e-5, rtol=1e-5)


@EACH
def test_no_symbol_is_taken_for_padding_where_nothing_is_padded(architecture: str) -> None:
    model = classifier(-1, architecture=architecture)
    model(torch.stack((torch.arange(9), torch.arange(2, 11)))).sum().backward()
    moved = model.network.get_input_embeddings().weight.grad.ne(0).any(1)
    assert moved.tolist() == 11 * [True] + [False]  # all of them, and the one that never comes


@EACH
def test_every_peg_is_on_the_way_to_the_logits(architecture: str) -> None:
    class Change(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.arange(x.shape[-1], dtype=x.dtype) ** 2

    tokens, plain = sentences(), classifier(architecture=architecture)
    names = [(name, peg.site) for name, peg in pegs.find(plain)]
    assert [site for _, site in names] == ["embedding", "hidden", "hidden", "logits"]
    before = plain(tokens)
    for name, _ in names:
        changed = copy.deepcopy(plain)
        changed.get_submodule(name).add_module("trick", Change())
        assert not torch.equal(changed(tokens), before)
    assert torch.equal(plain(tokens), before)


@pytest.mark.parametrize("architecture", ["roberta", "gpt2", "llama"])
def test_a_step_never_waits_for_the_device(architecture: str) -> None:
    model = {"name": "transformers", "architecture": architecture, "width": 8, "layers": 1, "heads": 2}
    assert "waits" not in plan(partner_config(model=model, data=TOKENS)).explain()


def test_an_architecture_that_waits_trains_under_the_name_that_says_so(tmp_path: Path) -> None:
    model = {"name": "transformers", "architecture": "mpnet", "width": 8, "layers": 1, "heads": 2}
    config = partner_config(data=TOKENS, model=model, trainer={"steps": 2, "device": "cpu"})
    with pytest.raises(PegboardError, match="waits for the device in every step"):
        plan(config).explain()
    config["model"]["name"] = "transformers_waiting"
    assert "most often at their attention mask" in plan(config).explain()
    assert train(config, root=tmp_path, quiet=True).status == "finished"


def test_sizes_and_options_reach_the_architecture() -> None:
    model = classifier(
        architecture="gpt2", feedforward=24, dropout=0.25, options={"activation_function": "relu"}
    )
    config = model.network.config
    assert (config.n_embd, config.n_layer, config.n_head, config.n_inner) == (8, 2, 2, 24)
    assert config.activation_function == "relu"
    rates = {m.p for m in model.modules() if isinstance(m, nn.Dropout)}
    assert rates == {0.25}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"architecture": "brt"}, "no architecture 'brt'; did you mean .*'bert'"),
        ({"architecture": "vit"}, "no architecture 'vit'"),
        ({"architecture": "bart"}, "an encoder or a decoder alone"),
        ({"options": {"hidden_dropout": 0.1}}, "no option of bert 'hidden_dropout'; did you mean"),
        ({"options": {"hidden_act": "sharp"}}, "makes no bert of this: KeyError: 'sharp'"),
        ({"heads": 3}, "3 heads do not divide a width of 8"),
        ({"architecture": "../evil"}, "a model type of transformers"),
        ({"pretrained": "./nowhere"}, "there is no folder './nowhere'"),
        ({"pretrained": "./nowhere", "layers": 3}, "saved weights come with their own"),
        ({"pretrained": "nobody/nothing"}, "cannot load 'nobody/nothing'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_mistakes_are_told_in_one_message(fields: dict[str, Any], told: str) -> None:
    sizes = {} if "pretrained" in fields else {"width": 8, "layers": 1, "heads": 2}
    with pytest.raises(PegboardError, match=told):
        plan(partner_config(model={"name": "transformers", **sizes, **fields}, data=TOKENS)).explain()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the weights of a small network that tells two classes apart."""
    folder = tmp_path / "saved"
    context = Context(spec=DataSpec((Tokens(11, 9, PAD),), Classes(2)), outputs=2)
    build(Transformers(width=8, layers=1, heads=2), context).network.save_pretrained(folder)
    return folder


def test_saved_weights_are_loaded_with_a_new_head(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    context = Context(spec=DataSpec((Tokens(11, 9, PAD),), Classes(4)), outputs=4)
    model = build(Transformers(pretrained=str(saved)), context)
    source = AutoModelForSequenceClassification.from_pretrained(saved)
    capfd.readouterr()
    build(Transformers(pretrained=str(saved)), context)
    assert capfd.readouterr() == ("", "")
    loaded = model.network.state_dict()
    for name, weight in source.state_dict().items():
        assert name.startswith("classifier.") or torch.equal(loaded[name], weight)
    assert model(sentences()).shape == (3, 4)


def test_saved_weights_train(saved: Path, tmp_path: Path) -> None:
    config = partner_config(
        model={"name": "transformers", "pretrained": str(saved)},
        data=TOKENS,
        trainer={"steps": 2, "device": "cpu"},
    )
    assert train(config, root=tmp_path / "runs", quiet=True).status == "finished"


@pytest.mark.parametrize(
    ("symbols", "told"),
    [
        (Tokens(12, 9, PAD), "the data has 12 symbols, and it knows 11"),
        (Tokens(11, 99, PAD), "up to 99 long, and it reads 13"),
        (Tokens(11, 9, 0), "pads with symbol 0, and it with 3"),
    ],
)
def test_data_with_other_symbols_is_refused(symbols: Tokens, told: str, saved: Path) -> None:
    context = Context(spec=DataSpec((symbols,), Classes(4)), outputs=4)
    with pytest.raises(PegboardError, match=told):
        build(Transformers(pretrained=str(saved)), context)
