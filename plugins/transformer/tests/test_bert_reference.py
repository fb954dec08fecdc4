"""bert beside that of Hugging Face with the same weights, and its size beside the published one."""

import pytest
import torch
from pegboard import Classes, Context, DataSpec, Tokens
from pegboard_transformer import Masked, Span
from pegboard_transformer.bert_options import BERT, Bert

transformers = pytest.importorskip("transformers")

VOCAB, LENGTH, PADDING = 30, 11, 0
SMALL = {"layers": 3, "width": 24, "heads": 4, "feed": 40, "longest": 20}


def ours(target, outputs, device="cpu", vocab=VOCAB, length=LENGTH, **fields):
    spec = DataSpec((Tokens(vocab, length, PADDING), Tokens(2, length)), target)
    with torch.device(device):
        return BERT.build(
            Bert(**(fields or SMALL)), Context(spec=spec, outputs=outputs, device=device)
        ).eval()


def theirs(kind, labels=2):
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=SMALL["width"],
        num_hidden_layers=SMALL["layers"],
        num_attention_heads=SMALL["heads"],
        intermediate_size=SMALL["feed"],
        max_position_embeddings=SMALL["longest"],
        num_labels=labels,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = kind(config).eval()
        for parameter in model.parameters():  # biases and norms begin as zeros and ones, which hide mistakes
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    return model


def batch():
    """Texts of 4 to 11 places, of two sentences."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, VOCAB, (5, LENGTH), generator=generator)
    lasts = torch.arange(LENGTH) < torch.tensor([11, 4, 7, 9, 5]).unsqueeze(1)
    segments = (torch.arange(LENGTH) >= 3).long().expand(5, -1) * lasts
    return tokens.masked_fill(~lasts, PADDING), segments, lasts


def run(model, tokens, segments, lasts):
    with torch.no_grad():
        return model(input_ids=tokens, token_type_ids=segments, attention_mask=lasts.long())


def adopted(model, state):
    """The model with the weights of another, every one of which it must take."""
    model.load_state_dict(model.adopt(dict(state)))
    return model


def close(mine, other):
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def test_body_and_classifier_agree_with_padding_and_segments():
    tokens, segments, lasts = batch()
    reference = theirs(transformers.BertForSequenceClassification, labels=3)
    model = adopted(ours(Classes(3), 3), reference.state_dict())
    with torch.no_grad():
        close(model.encode(tokens, segments)[lasts], run(reference.bert, tokens, segments, lasts)[0][lasts])
        close(
            model.head.pool(model.encode(tokens, segments)), run(reference.bert, tokens, segments, lasts)[1]
        )
        close(model(tokens, segments), run(reference, tokens, segments, lasts).logits)
        # Without segments, all is the first sentence.
        close(model(tokens), run(reference, tokens, torch.zeros_like(tokens), lasts).logits)


def test_body_alone_is_adopted_without_its_prefix_and_by_its_older_names():
    reference = theirs(transformers.BertModel)
    model = ours(Classes(3), 3)
    older = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in reference.state_dict().items()
    }
    found = model.load_state_dict(model.adopt(older), strict=False)
    assert found.unexpected_keys == []
    assert found.missing_keys == ["head.classifier.weight", "head.classifier.bias"]
    tokens, segments, lasts = batch()
    with torch.no_grad():
        close(model.encode(tokens, segments)[lasts], run(reference, tokens, segments, lasts)[0][lasts])


def test_pretraining_agrees_where_the_second_logit_says_that_a_sentence_follows():
    tokens, segments, lasts = batch()
    reference = theirs(transformers.BertForPreTraining)
    model = adopted(ours(Masked(VOCAB, LENGTH), VOCAB), reference.state_dict())
    with torch.no_grad():
        output = model(tokens, segments)
    expected = run(reference, tokens, segments, lasts)
    assert output.shape == (5, 1 + LENGTH, VOCAB)
    close(output[:, 1:][lasts], expected.prediction_logits[lasts])
    close(output[:, 0, :2], expected.seq_relationship_logits.flip(1))
    assert (output[:, 0, 2:] == -1e9).all()


def test_tags_agree():
    tokens, segments, lasts = batch()
    reference = theirs(transformers.BertForTokenClassification, labels=4)
    model = adopted(ours(Tokens(4, LENGTH), 4), reference.state_dict())
    with torch.no_grad():
        close(model(tokens, segments)[lasts], run(reference, tokens, segments, lasts).logits[lasts])


def test_spans_agree_and_padding_cannot_be_one():
    tokens, segments, lasts = batch()
    reference = theirs(transformers.BertForQuestionAnswering)
    model = adopted(ours(Span(LENGTH), 2), reference.state_dict())
    expected = run(reference, tokens, segments, lasts)
    with torch.no_grad():
        start, end = model(tokens, segments).unbind(1)
    close(start[lasts], expected.start_logits[lasts])
    close(end[lasts], expected.end_logits[lasts])
    assert (start[~lasts] == -1e9).all() and (end[~lasts] == -1e9).all()


def test_base_has_the_published_number_of_parameters_in_the_same_shapes():
    base = {"layers": 12, "width": 768, "heads": 12, "longest": 512}
    model = ours(Classes(2), 2, "meta", 30522, 512, **base)
    body = {n: p.shape for n, p in model.named_parameters() if not n.startswith("head.classifier.")}
    assert sum(shape.numel() for shape in body.values()) == 109_482_240
    with torch.device("meta"):
        reference = transformers.BertModel(transformers.BertConfig())
    assert {n: p.shape for n, p in model.adopt(dict(reference.named_parameters())).items()} == body
    pretraining = ours(Masked(30522, 512), 30522, "meta", 30522, 512, **base)
    with torch.device("meta"):
        whole = transformers.BertForPreTraining(transformers.BertConfig())
    shapes = {n: p.shape for n, p in pretraining.adopt(dict(whole.named_parameters())).items()}
    assert shapes == {n: p.shape for n, p in pretraining.named_parameters()}


def test_what_it_does_not_know_is_passed_on():
    model = ours(Classes(3), 3)
    state = {
        "other.weight": torch.zeros(1),
        "bert.encoder.layer.0.attention.self.query.weight": torch.ones(1),
    }
    assert set(model.adopt(state)) == {*state}
    own = model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in model.adopt(dict(own)).items())
