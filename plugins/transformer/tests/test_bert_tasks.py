"""What bert sees, what each head reads, and small languages that it learns through a run."""

import bert_toys
import pegboard
import pytest
import torch
import torch.nn.functional as F
from bert_toys import BEGIN, END, FIRST, LENGTH, PADDING, SIDES, TARGETS, TEXT, VOCAB, made
from pegboard import Context, DataSpec, Facts, Tokens
from pegboard_transformer import Masked, Span
from pegboard_transformer.bert_options import BERT, Bert

pytestmark = pytest.mark.usefixtures("lean")

SMALL = {"layers": 2, "width": 32, "heads": 4, "longest": 16}


def config(task, steps, *, lr=0.004, std=0.1, size=32, **nodes):
    base = {
        "seed": 0,
        "data": {"name": "toy", "task": task, "batch_size": size, "samples": 3200 if steps > 100 else 64},
        "model": {"name": "bert", **SMALL, "std": std},
        "optimizer": {"name": "adam", "lr": lr},
        "trainer": {"steps": steps, "device": "cpu", "threads": 1},
        "plugins": {"local": [bert_toys.__file__]},
    }
    return base | nodes


def build(task, **fields):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        spec = DataSpec((TEXT, SIDES), TARGETS[task])
        model = BERT.build(Bert(**SMALL, **fields), Context(spec=spec, outputs=TARGETS[task].size))
    return model.eval()


def texts(task, count=6):
    return made(task, count, torch.Generator().manual_seed(0))


@pytest.mark.sweep
@pytest.mark.catalogue("S4-108")
def test_it_learns_which_sentence_follows(tmp_path):
    run = pegboard.train(config("pairs", 150, lr=0.001, std=0.2, size=64), root=tmp_path, quiet=True)
    assert run.figures["test/next_accuracy"] >= 0.95


@pytest.mark.catalogue("S4-111")
def test_it_learns_whether_most_words_are_good(tmp_path):
    run = pegboard.train(config("sentiment", 120), root=tmp_path, quiet=True)
    assert run.figures["test/accuracy"] >= 0.95


@pytest.mark.catalogue("S4-110")
def test_it_learns_the_tag_of_every_word(tmp_path):
    run = pegboard.train(config("tags", 130), root=tmp_path, quiet=True)
    assert run.figures["test/accuracy"] >= 0.95


@pytest.mark.catalogue("S4-109")
def test_it_learns_to_point_at_answers_in_the_second_sentence(tmp_path):
    nodes = {"model": {"name": "bert", **SMALL, "std": 0.1, "answers": "second"}}
    run = pegboard.train(config("answers", 220, **nodes), root=tmp_path, quiet=True)
    assert run.figures["test/exact_match"] >= 0.9
    assert run.figures["test/f1"] >= 0.95


@pytest.mark.catalogue("S4-106")
def test_every_place_sees_the_whole_text_and_none_sees_padding():
    model = build("sentiment", std=0.2)
    (tokens, segments), _ = texts("tags")
    assert (tokens[:, 0] == BEGIN).all() and (tokens == END).any(1).all()
    tokens = tokens[:, :10]  # up to the last word
    with torch.no_grad():
        seen = model.encode(tokens, segments[:, :10])
        changed = tokens.clone()
        changed[:, -1] = FIRST + (changed[:, -1] - FIRST + 1) % 20
        other = model.encode(changed, segments[:, :10])
        assert ((other - seen).abs().amax(-1) > 1e-4).all()
        longer = F.pad(tokens, (0, 2), value=PADDING)
        padded = model.encode(longer, segments)[:, :10]
        torch.testing.assert_close(padded, seen, atol=1e-5, rtol=0)  # other sizes, other sums
        model.words.weight[PADDING] = 100.0
        torch.testing.assert_close(model.encode(longer, segments)[:, :10], padded, atol=1e-6, rtol=0)


def encoded_grad(model, inputs, read):
    """The gradient of what is read from an output, by the places of the last block."""
    places = []
    hook = model.encoder.register_forward_hook(lambda m, i, output: places.append(output))
    loss = read(model(*inputs))
    hook.remove()
    (grad,) = torch.autograd.grad(loss, places)
    return grad


@pytest.mark.catalogue("S4-111")
def test_a_class_is_read_from_the_first_place_alone():
    inputs, target = texts("sentiment")
    grad = encoded_grad(build("sentiment"), inputs, lambda y: F.cross_entropy(y, target))
    assert (grad[:, 0] != 0).any(-1).all()
    assert (grad[:, 1:] == 0).all()


@pytest.mark.catalogue("S4-108")
def test_what_follows_is_read_from_the_first_place_alone():
    inputs, _ = texts("hidden")
    grad = encoded_grad(build("hidden"), inputs, lambda y: y[:, 0, :2].square().sum())
    assert (grad[:, 0] != 0).any(-1).all()
    assert (grad[:, 1:] == 0).all()


@pytest.mark.catalogue("S4-107")
def test_only_hidden_places_teach_symbols():
    inputs, target = texts("hidden", 40)
    from pegboard_transformer.objectives import pretraining

    asked = target.clone()
    asked[:, 0] = -100
    grad = encoded_grad(build("hidden"), inputs, lambda y: pretraining(y, asked))
    hidden = asked[:, 1:] != -100
    assert hidden.any()
    assert (grad[hidden] != 0).any(-1).all()
    assert (grad[~hidden] == 0).all()


@pytest.mark.catalogue("S4-110")
def test_tags_of_words_alone_count_and_follow_them_where_there_are_no_positions():
    from pegboard_objectives import CrossEntropy, pegboard_objectives

    (tokens, segments), target = texts("tags")
    model = build("tags", std=0.2)
    part = next(part for part in pegboard_objectives() if part.name == "cross_entropy")
    spec = DataSpec((TEXT, SIDES), TARGETS["tags"])
    loss = part.build(CrossEntropy(), Context(spec=spec, outputs=3)).loss
    with torch.no_grad():
        output = model(tokens, segments)
        assert output.shape == (6, LENGTH, 3)
        marks = (tokens == BEGIN) | (tokens == END) | (tokens == PADDING)
        assert (target[marks] == -100).all() and (target[~marks] != -100).all()

        strange = output.masked_fill(marks.unsqueeze(-1), 50.0)
        torch.testing.assert_close(loss(strange, target), loss(output, target))
        order = torch.cat(
            (torch.tensor([0]), 1 + torch.randperm(9, generator=torch.Generator().manual_seed(1)))
        )
        moved, named = tokens.clone(), target.clone()
        moved[:, :10], named[:, :10] = tokens[:, order], target[:, order]
        assert (loss(model(moved, segments), named) - loss(output, target)).abs() > 1e-5
        model.positions.weight.zero_()
        torch.testing.assert_close(loss(model(moved, segments), named), loss(model(tokens, segments), target))


@pytest.mark.catalogue("S4-109")
def test_chances_of_the_ends_of_an_answer_are_all_in_the_passage():
    (tokens, segments), _ = texts("answers")
    passage = (segments == 1) & (tokens != END)
    with torch.no_grad():
        output = build("answers", answers="second")(tokens[:, :11], segments[:, :11])
    assert output.shape == (6, 2, LENGTH)  # as the spec says, though this batch is shorter
    chances = output.softmax(-1)
    torch.testing.assert_close(chances.sum(-1), torch.ones(6, 2))
    assert (chances.transpose(1, 2)[~passage] == 0).all()
    assert (chances.transpose(1, 2)[passage] > 0).all()


def test_a_pretrained_run_begins_every_head(tmp_path):
    first = pegboard.train(config("hidden", 3), root=tmp_path, quiet=True)
    trained = first.model.state_dict()
    body = {name for name in trained if not name.startswith("head.")}
    for task, kept in (
        ("sentiment", {"head.pooler.weight", "head.pooler.bias"}),
        ("tags", set()),
        ("answers", set()),
    ):
        own = build(task).state_dict()
        assert {n for n in own if n in trained and own[n].shape == trained[n].shape} == body | kept
        weights = {"model": {"name": "bert", **SMALL, "weights": str(first.folder)}}
        still = {"optimizer": {"name": "sgd", "lr": 1e-30}}
        run = pegboard.train(config(task, 1, **weights, **still), root=tmp_path, quiet=True)
        found = run.model.state_dict()
        assert all(torch.equal(found[name], trained[name]) for name in body | kept)


TRICKS = {
    "dropout": {"p": 0.3, "sites": ["attention", "residual", "embedding", "pooled"]},
    "batchnorm": {},
    "weight_decay": {"value": 0.5},
    "label_smoothing": {"epsilon": 0.2},
    "distillation": {"alpha": 0.5},
}


@pytest.mark.parametrize("task", ["hidden", "sentiment", "tags", "answers"])
def test_tricks_act_on_every_head_together(tmp_path, task):
    teacher = pegboard.train(config(task, 1), root=tmp_path, quiet=True)
    tricks = {name: dict(fields) for name, fields in TRICKS.items()}
    tricks["distillation"]["teacher"] = str(teacher.folder)
    if task == "answers":  # no smoothing of places: they differ in number from text to text
        del tricks["label_smoothing"]
    run = pegboard.train(config(task, 2, regularizers=tricks), root=tmp_path, quiet=True)
    assert run.status == "finished"


def problems(spec, **fields):
    return [p.message for p in BERT.check(Bert(**fields), Facts(spec=spec))]


def test_what_cannot_be_is_said_before_anything_is_built():
    good = DataSpec((TEXT, SIDES), Masked(VOCAB, LENGTH))
    assert problems(good) == [] == problems(None)
    assert "5 heads" in problems(good, heads=5)[0]
    assert "up to 12 places, and there are 8 positions" in problems(good, longest=8)[0]
    assert "Tokens(24" in problems(DataSpec((TEXT, TEXT), TEXT))[0]
    assert "uncover are 9" in problems(DataSpec((TEXT, SIDES), Masked(9, LENGTH)))[0]
    assert "answers" in problems(DataSpec((TEXT,), Span(LENGTH)), answers="second")[0]
    assert problems(DataSpec((TEXT,) * 3, TEXT)) != []
    assert problems(DataSpec((Tokens(),), Masked())) == []
