"""Configs that are wrong in the ways people get them wrong, and what the report says of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# (what of `base` is replaced, by what, where the mistake is, path, suggestion or "", a piece of the text)
WRONG = [
    # Misspelt keys at every depth.
    ("seed:", "sed:", "1:1", "sed", "seed", "unknown key 'sed'"),
    ("seed:", "Seed:", "1:1", "Seed", "seed", ""),
    ("seed:", "random_seed:", "1:1", "random_seed", "seed", ""),
    ("data:", "dta:", "2:1", "dta", "data", "expected one of extends, name, seed, data"),
    ("data:", "dataset:", "2:1", "dataset", "data", ""),
    ("model:", "modle:", "3:1", "modle", "model", ""),
    ("model:", "network:", "3:1", "network", "model", ""),
    ("optimizer:", "optimiser:", "7:1", "optimiser", "optimizer", ""),
    ("optimizer:", "optim:", "7:1", "optim", "optimizer", ""),
    ("regularizers:", "regularisers:", "8:1", "regularisers", "regularizers", ""),
    ("regularizers:", "regularizer:", "8:1", "regularizer", "regularizers", ""),
    ("trainer:", "trianer:", "10:1", "trianer", "trainer", ""),
    ("trainer:", "training:", "10:1", "training", "trainer", ""),
    ("batch_size", "batchsize", "2:21", "data.batchsize", "batch_size", ""),
    ("batch_size", "batch-size", "2:21", "data.batch-size", "batch_size", ""),
    ("batch_size: 64", "nosie: 0.5", "2:21", "data.nosie", "noise", "of dataset 'spots'"),
    ("  hidden:", "  hiden:", "5:3", "model.hiden", "hidden", "all keys: pegboard show dense"),
    ("  hidden:", "  hidden_sizes:", "5:3", "model.hidden_sizes", "hidden", ""),
    ("  activation:", "  activaton:", "6:3", "model.activaton", "activation", ""),
    ("  activation:", "  act:", "6:3", "model.act", "activation", ""),
    ("lr:", "rl:", "7:28", "optimizer.rl", "lr", ""),
    ("lr:", "learning_rate:", "7:28", "optimizer.learning_rate", "lr", ""),
    ("lr:", "LR:", "7:28", "optimizer.LR", "lr", ""),
    ("lr: 1e-3", "lr: 1e-3, shedule: wave", "7:38", "optimizer.shedule", "schedule", ""),
    ("lr: 1e-3", "lr: 1e-3, scheduler: wave", "7:38", "optimizer.scheduler", "schedule", ""),
    ("lr: 1e-3", "lr: 1e-3, schedule: {name: wave, warm_up: 3}", "7:61", "optimizer.schedule.warm_up",
     "warmup", "of schedule 'wave'"),
    ("{p: 0.2}", "{pp: 0.2}", "9:10", "regularizers.drop.pp", "p", ""),
    ("{p: 0.2}", "{prob: 0.2}", "9:10", "regularizers.drop.prob", "p", ""),
    ("{p: 0.2}", "{rate: 0.2}", "9:10", "regularizers.drop.rate", "p", ""),
    ("{p: 0.2}", "{site: [hidden]}", "9:10", "regularizers.drop.site", "sites", ""),
    ("epochs:", "epoch:", "10:11", "trainer.epoch", "epochs", "pegboard show trainer"),
    ("epochs:", "max_epochs:", "10:11", "trainer.max_epochs", "epochs", ""),
    ("epochs: 2", "evalevery: 2", "10:11", "trainer.evalevery", "eval_every", ""),
    ("epochs: 2", "log_evry: 2", "10:11", "trainer.log_evry", "log_every", ""),
    # Keys in the wrong node.
    ("seed: 0", "lr: 0.1", "1:1", "lr", "optimizer.lr", ""),
    ("seed: 0", "epochs: 3", "1:1", "epochs", "trainer.epochs", ""),
    ("seed: 0", "batch_size: 3", "1:1", "batch_size", "data.batch_size", ""),
    ("seed: 0", "hidden: [3]", "1:1", "hidden", "model.hidden", ""),
    ("seed: 0", "drop: {p: 0.1}", "1:1", "drop", "regularizers.drop", ""),
    ("seed: 0", "scheduler: wave", "1:1", "scheduler", "optimizer.schedule", ""),
    ("epochs: 2", "lr: 2", "10:11", "trainer.lr", "optimizer.lr", ""),
    ("epochs: 2", "batch_size: 2", "10:11", "trainer.batch_size", "data.batch_size", ""),
    ("lr: 1e-3", "lr: 1e-3, epochs: 3", "7:38", "optimizer.epochs", "trainer.epochs", ""),
    ("  activation: relu", "  drop: 0.5", "6:3", "model.drop", "regularizers.drop", ""),
    ("  activation: relu", "  trainer: {}", "6:3", "model.trainer", "", "stands at the top of the config"),
    ("  activation: relu", "  kernel_size: 3", "6:3", "model.kernel_size", "", "is a key of model 'conv'"),
    ("lr: 1e-3", "lr: 1e-3, betas: [1, 2]", "7:38", "optimizer.betas", "", "a key of optimizer 'adaptive'"),
    ("seed: 0", "descent: {lr: 1}", "1:1", "descent", "", "optimizer: {name: descent, ...}"),
    ("epochs: 2", "seed: 2", "10:11", "trainer.seed", "", "'seed' stands at the top of the config"),
    ("  activation: relu", "  extends: x", "6:3", "model.extends", "", "'extends' stands at the top"),
    ("seed: 0", "model.hidden: [3]", "1:1", '"model.hidden"', "", "nest it: model: {hidden: ...}"),
    # Names of parts.
    ("name: spots", "name: spot", "2:14", "data.name", "spots", "unknown dataset 'spot'"),
    ("name: spots", "name: Spots", "2:14", "data.name", "spots", ""),
    ("name: dense", "name: dence", "4:9", "model.name", "dense", "list them: pegboard show models"),
    ("name: dense", "name: denes", "4:9", "model.name", "dense", "expected one of anything, dense"),
    ("name: dense", "name: DENSE", "4:9", "model.name", "dense", ""),
    ("name: dense", "name: ouroboros_xl", "4:9", "model.name", "", "unknown model 'ouroboros_xl'"),
    ("name: dense", "name: drop", "4:9", "model.name", "", "'drop' is a regularizer, not a model"),
    ("name: dense", "name: acme.nn.Dense", "4:9", "model.name", "dense", ""),
    ("name: dense", "name: 5", "4:9", "model.name", "", "found 5"),
    ("name: descent", "name: decent", "7:19", "optimizer.name", "descent", ""),
    ("name: descent", "name: wave", "7:19", "optimizer.name", "", "'wave' is a schedule, not an optimizer"),
    ("lr: 1e-3", "lr: 1e-3, schedule: wav", "7:48", "optimizer.schedule.name", "wave", ""),
    ("lr: 1e-3", "lr: 1e-3, schedule: {name: waev}", "7:55", "optimizer.schedule.name", "wave", ""),
    ("  drop:", "  dorp:", "9:3", "regularizers.dorp", "drop", "unknown regularizer"),
    ("  drop:", "  Drop:", "9:3", "regularizers.Drop", "drop", ""),
    ("  drop:", "  descent:", "9:3", "regularizers.descent", "", "an optimizer stands under optimizer"),
    ("  drop: {p: 0.2}", "  d: {name: drp}", "9:13", "regularizers.d.name", "drop", ""),
    ("seed: 0", "objective: entropie", "1:12", "objective.name", "entropy", ""),
    ("seed: 0", "trackers: {bord: {}}", "1:12", "trackers.bord", "board", ""),
    ("seed: 0", "trackers: {board: {projct: x}}", "1:20", "trackers.board.projct", "project", ""),
    # The key that names a part.
    ("name: dense", "nmae: dense", "4:3", "model.nmae", "name", ""),
    ("name: dense", "type: dense", "4:3", "model.type", "name", ""),
    ("name: dense", "_target_: dense", "4:3", "model._target_", "name", ""),
    ("  name: dense\n", "", "3:1", "model.name", "name: dense", "does not say which model"),
    ("name: spots, ", "", "2:1", "data.name", "", "does not say which dataset"),
    ("{name: descent, lr: 1e-3}", "{descent: {lr: 1e-3}}", "7:13", "optimizer.descent", "",
     "{name: descent, lr: 0.001}"),
    ("{name: descent, lr: 1e-3}", "[descent]", "7:12", "optimizer", "", "found the list [descent]"),
    ("{name: descent, lr: 1e-3}", "", "7:11", "optimizer", "", "no optimizer is named"),
    ("{name: descent, lr: 1e-3}", "0.1", "7:12", "optimizer", "", "found 0.1"),
    # Choices.
    ("activation: relu", "activation: rellu", "6:15", "model.activation", "relu", "one of relu, tanh, gelu"),
    ("activation: relu", "activation: ReLU", "6:15", "model.activation", "relu", ""),
    ("activation: relu", "activation: 3", "6:15", "model.activation", "", "found 3"),
    ("epochs: 2", "precision: float32", "10:22", "trainer.precision", "fp32", ""),
    ("epochs: 2", "precision: 16", "10:22", "trainer.precision", "fp16", ""),
    ("epochs: 2", "precision: bfloat16", "10:22", "trainer.precision", "bf16", ""),
    ("epochs: 2", "device: gpu", "10:19", "trainer.device", "cuda", "auto, cpu, cuda, cuda:N or mps"),
    ("epochs: 2", "device: CPU", "10:19", "trainer.device", "cpu", ""),
    ("epochs: 2", "mode: maximum", "10:17", "trainer.mode", "max", ""),
    # Types.
    ("seed: 0", "seed: zero", "1:7", "seed", "", "expected a whole number (at least 0)"),
    ("seed: 0", "seed: 1.5", "1:7", "seed", "", "found 1.5"),
    ("seed: 0", "seed: [1]", "1:7", "seed", "", "without brackets: seed: 1"),
    ("lr: 1e-3", 'lr: "1e-3"', "7:32", "optimizer.lr", "", "without quotes: lr: 1e-3"),
    ("lr: 1e-3", "lr: small", "7:32", "optimizer.lr", "", "expected a number (more than 0)"),
    ("lr: 1e-3", "lr: [1e-3]", "7:32", "optimizer.lr", "", "without brackets: lr: 0.001"),
    ("lr: 1e-3", "lr: {value: 1}", "7:32", "optimizer.lr", "", "found a mapping with value"),
    ("lr: 1e-3", "lr: true", "7:32", "optimizer.lr", "", "found true"),
    ("lr: 1e-3", "lr: 0,001", "7:34", "optimizer.lr", "", "a number takes a point: lr: 0.001"),
    ("lr: 1e-3", "lr: '0,001'", "7:32", "optimizer.lr", "", "with a decimal point: lr: 0.001"),
    ("lr: 1e-3", "lr: 10^-3", "7:32", "optimizer.lr", "", "as a number: lr: 1e-3"),
    ("{p: 0.2}", "{p: 20%}", "9:13", "regularizers.drop.p", "", "as a share: p: 0.2"),
    ("[32, 16]", "32", "5:11", "model.hidden", "", "in brackets: hidden: [32]"),
    ("[32, 16]", '"32"', "5:11", "model.hidden", "", "in brackets: hidden: [32]"),
    ("[32, 16]", "[32, x]", "5:16", "model.hidden.1", "", "found the text 'x'"),
    ("[32, 16]", "[32, 1.5]", "5:16", "model.hidden.1", "", "expected a whole number"),
    ("[32, 16]", "[[32], 16]", "5:12", "model.hidden.0", "", "found the list [32]"),
    ("[32, 16]", "32x16", "5:11", "model.hidden", "", "a list takes brackets and commas: hidden: [a, b]"),
    ("[32, 16]", "{a: 1}", "5:11", "model.hidden", "", "found a mapping with a"),
    ("epochs: 2", "epochs: 10.5", "10:19", "trainer.epochs", "", "found 10.5"),
    ("epochs: 2", "epochs: '2'", "10:19", "trainer.epochs", "", "without quotes: epochs: 2"),
    ("epochs: 2", "epochs: 1_000", "10:19", "trainer.epochs", "", "without underscores: epochs: 1000"),
    ("epochs: 2", "monitor: 5", "10:20", "trainer.monitor", "",
     'in quotes, if the text is meant: monitor: "5"'),
    ("epochs: 2", "deterministic: maybe", "10:26", "trainer.deterministic", "", "expected true or false"),
    ("epochs: 2", "deterministic: 1", "10:26", "trainer.deterministic", "", "write deterministic: true"),
    ("epochs: 2", "deterministic: 'true'", "10:26", "trainer.deterministic", "", "without quotes"),
    ("{p: 0.2}", "0.2", "9:9", "regularizers.drop", "", "write drop: {p: 0.2}"),
    ("{p: 0.2}", "[0.2]", "9:9", "regularizers.drop", "", "expected a mapping of its keys"),
    ("{p: 0.2}", "{sites: hidden}", "9:17", "regularizers.drop.sites", "", "in brackets: sites: [hidden]"),
    ("{p: 0.2}", "{players: one}", "9:19", "regularizers.drop.players", "", "in brackets: players: [one]"),
    ("  drop: {p: 0.2}", "  - drop", "9:3", "regularizers", "", "write regularizers: {drop: {}}"),
    ("{epochs: 2}", "2", "10:10", "trainer", "", "expected a mapping"),
    ("{epochs: 2}", "{epochs:2}", "10:11", "trainer.epochs:2", "epochs",
     "write a space after the colon: epochs: 2"),
    ("{epochs: 2}", "\n  epochs:2", "11:3", "trainer", "", "write a space after the colon"),
    # Ranges.
    ("seed: 0", "seed: -1", "1:7", "seed", "", "expected a whole number (at least 0)"),
    ("batch_size: 64", "batch_size: 0", "2:33", "data.batch_size", "", "found 0"),
    ("[32, 16]", "[32, -16]", "5:16", "model.hidden.1", "", "found -16"),
    ("lr: 1e-3", "lr: 0", "7:32", "optimizer.lr", "", "a number (more than 0)"),
    ("lr: 1e-3", "lr: -1", "7:32", "optimizer.lr", "", "found -1"),
    ("lr: 1e-3", "lr: .nan", "7:32", "optimizer.lr", "", "found .nan"),
    ("lr: 1e-3", "lr: .inf", "7:32", "optimizer.lr", "", "found .inf"),
    ("lr: 1e-3", "lr: 1e-3, momentum: 1", "7:48", "optimizer.momentum", "", "at least 0 and less than 1"),
    ("p: 0.2", "p: 1.5", "9:13", "regularizers.drop.p", "", "a number (at least 0 and less than 1)"),
    ("epochs: 2", "epochs: 0", "10:19", "trainer.epochs", "", "a whole number (at least 1) or null"),
    ("seed: 0", "name: my run", "1:7", "name", "", "as name: my-run"),
    ("seed: 0", "name: ../x", "1:7", "name", "", "expected a folder name"),
    # Missing values.
    ("data: {name: spots, batch_size: 64}\n", "", "1:1", "data", "", "no dataset is named"),
    (", lr: 1e-3", "", "7:1", "optimizer.lr", "", "needs the key 'lr' (learning rate)"),
    ("lr: 1e-3", "lr:", "7:31", "optimizer.lr", "", "no value is given"),
    ("lr: 1e-3", "lr: null", "7:32", "optimizer.lr", "", "expected a number (more than 0)"),
    ("lr: 1e-3", "lr: '???'", "7:32", "optimizer.lr", "", "still to be given"),
    ("epochs: 2", "epochs:", "10:18", "trainer.epochs", "", "for none: epochs: null"),
    ("{p: 0.2}", "", "9:8", "regularizers.drop", "",
     "drop: {} takes the defaults, drop: null switches it off"),
    ("  drop: {p: 0.2}", "  teach: {}", "9:3", "regularizers.teach.teacher", "",
     "needs the key 'teacher' (run to"),
    ("{p: 0.2}", "{p: 0.2, name: null}", "9:24", "regularizers.drop.name", "", "found no value"),
    # What parts say of each other.
    ("name: spots, batch_size: 64", "name: words", "4:9", "model.name", "",
     "reads Vector or Image, but 'words' gives"),
    ("  drop: {p: 0.2}", "  loner: {}\n  drop: {}", "9:3", "regularizers.loner", "",
     "'loner' cannot stand beside"),
    ("  drop: {p: 0.2}", "  drop: {sites: [top]}", "9:17", "regularizers.drop.sites", "",
     "at least one of input, hidden"),
    ("  drop: {p: 0.2}", "  drop: {p: 0.95}", "9:13", "regularizers.drop.p", "", "at most 0.9"),
    ("  drop: {p: 0.2}", "  d: {name: drop}\n  drop: {}", "10:3", "regularizers.drop", "",
     "which comes first"),
    ("  drop: {p: 0.2}", "  teach: {teacher: a, low: 2}", "9:10", "regularizers.teach", "",
     "low (2.0) is above high"),
    ("  drop: {p: 0.2}", "  bomb: {}", "9:3", "regularizers.bomb", "", "a defect of the plugin"),
    ("name: spots, batch_size: 64", "name: faulty", "2:1", "data", "", "RuntimeError: boom"),
    ("seed: 0", "objective: squares", "1:1", "objective", "",
     "works on Values, but the target of 'spots' is Classes"),
    # Interpolation.
    ("lr: 1e-3", "lr: ${seeed}", "7:32", "optimizer.lr", "seed", "no key 'seeed' in the config"),
    ("lr: 1e-3", "lr: ${data.batchsize}", "7:32", "optimizer.lr", "data.batch_size", ""),
    ("lr: 1e-3", "lr: '${seed'", "7:32", "optimizer.lr", "", "not a valid interpolation"),
    ("lr: 1e-3", "lr: ${optimizer.lr}", "7:32", "optimizer.lr", "", "leads back to itself"),
    ("lr: 1e-3", "lr: ${oc.env:PEGBOARD_NO_SUCH}", "7:32", "optimizer.lr", "", "a resolver, which"),
    ("lr: 1e-3", "lr: ${eval:1+1}", "7:32", "optimizer.lr", "", "a resolver, which"),
    ("lr: 1e-3", "lr: '${model.${seed}}'", "7:32", "optimizer.lr", "", "inside an interpolation"),
    ("lr: 1e-3", "lr: ${model.name}", "7:32", "optimizer.lr", "", "'dense' (written ${model.name})"),
    # YAML that cannot be read.
    ("  name: dense", "\tname: dense", "4:1", "", "", "found a tab"),
    ("  hidden: [32, 16]", "    hidden: [32, 16]", "5:5", "", "", "indented deeper than line 4"),
    ("  hidden: [32, 16]", " hidden: [32, 16]", "5:2", "", "", "indentation"),
    ("[32, 16]", "[32, 16", "5:11", "", "", "the '[' that opens here is not closed"),
    ("{epochs: 2}", "{epochs: 2", "10:10", "", "", "the '{' that opens here is not closed"),
    ("activation: relu", "activation: 'relu", "6:15", "", "", "never closed"),
    ("seed: 0", "seed:0", "1:1", "", "", "no space after the colon"),
    ("seed: 0", "seed 0", "1:1", "", "", "without a colon"),
    ("seed: 0", "seed: 0: 1", "1:8", "", "", "a second colon"),
    ("seed: 0", "seed: @x", "1:7", "", "", "no YAML value begins with '@'"),
    ("seed: 0", "seed: *x", "1:7", "", "", "undefined alias"),
    ("seed: 0", "seed: - 1", "1:7", "", "", "begin a new line"),
    ("[32, 16]", "[32,, 16]", "5:15", "", "", "between two commas"),
    ("[32, 16]", "[32, 16]]", "5:19", "", "", "never opened"),
    ("trainer:", "---\ntrainer:", "10:1", "", "", "second document"),
    ("seed: 0", "seed: 0\nseed: 1", "2:1", "seed", "", "in line 1 and in line 2"),
    ("seed: 0", "7: 0", "1:1", "", "", "not a text"),
    ("seed: 0", "seed: !!python/name:os.system", "1:7", "seed", "", "YAML tag !!python/name:os.system"),
    ("seed: 0", "seed: !thing 5", "1:7", "seed", "", "YAML tag !thing"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "path", "meant", "piece"), WRONG)
def test_a_wrong_config_is_told_where_and_how_to_mend_it(
    refuse: Callable[..., list[Any]],
    base: str,
    old: str,
    new: str,
    place: str,
    path: str,
    meant: str,
    piece: str,
) -> None:
    assert old in base
    mistakes = refuse(base.replace(old, new, 1))
    assert len(mistakes) == 1, "\n".join(map(str, mistakes))
    (mistake,) = mistakes
    text = str(mistake)
    assert text.splitlines()[0] == f"cfg.yaml:{place}" + (f": {path}" if path else ""), text
    assert mistake.path == path
    assert (mistake.nearest[:1] or ("",))[0] == meant, text
    assert piece in text
    assert 2 <= len(text.splitlines()) <= 5
    if meant:
        assert f"did you mean {meant!r}?" in text.splitlines()[1]


OVERRIDES = [
    (["model.hiden=[3]"], "'model.hiden=[3]'", "model.hiden", "hidden", ""),
    (["model.hidden=3"], "'model.hidden=3'", "model.hidden", "", "in brackets: hidden: [3]"),
    (["model.hidden.0=3"], "'model.hidden.0=3'", "model.hidden", "", "give the whole list"),
    (["model.name=cov"], "'model.name=cov'", "model.name", "conv", ""),
    (["model=densse"], "'model=densse'", "model.name", "dense", ""),
    (["epochs=3"], "'epochs=3'", "epochs", "trainer.epochs", ""),
    (["trainer.epochs=ten"], "'trainer.epochs=ten'", "trainer.epochs", "", "found the text 'ten'"),
    (["trainer.epochs="], "'trainer.epochs='", "trainer.epochs", "", "for none: trainer.epochs=null"),
    (["trainer.epochs"], "'trainer.epochs'", "", "", "no '=' in it"),
    (["trainer.epochs:3"], "'trainer.epochs:3'", "", "", "write trainer.epochs=3"),
    (["trainer.epochs", "=", "3"], "'trainer.epochs ='", "", "", "one word: trainer.epochs=3"),
    (["--trainer.epochs=3"], "'--trainer.epochs=3'", "", "", "write trainer.epochs=3"),
    (["+trainer.epochs=3"], "'+trainer.epochs=3'", "", "", "do not begin with '+'"),
    (["~regularizers.drop"], "'~regularizers.drop'", "", "", "regularizers.drop=null"),
    (["=3"], "'=3'", "", "", "no key before '='"),
    (["trainer..epochs=3"], "'trainer..epochs=3'", "", "", "empty part"),
    (["model.hidden=[3"], "'model.hidden=[3'", "model.hidden", "", "cannot be read"),
    (["extends=x.yaml"], "'extends=x.yaml'", "extends", "", "cannot be set on the command line"),
    (["other.yaml"], "'other.yaml'", "", "", "a command takes one config"),
    (
        ["regularizers.drp=null"],
        "'regularizers.drp=null'",
        "regularizers.drp",
        "drop",
        "switches nothing off",
    ),
    (["regularizers.drop.p=2"], "'regularizers.drop.p=2'", "regularizers.drop.p", "", "found 2"),
    (["optimizer.lr=${sed}"], "'optimizer.lr=${sed}'", "optimizer.lr", "seed", ""),
]


@pytest.mark.parametrize(("words", "word", "path", "meant", "piece"), OVERRIDES)
def test_a_wrong_override_is_located_at_its_word(
    refuse: Callable[..., list[Any]],
    base: str,
    words: list[str],
    word: str,
    path: str,
    meant: str,
    piece: str,
) -> None:
    mistakes = refuse(base, *words)
    assert len(mistakes) == 1, "\n".join(map(str, mistakes))
    text = str(mistakes[0])
    assert text.startswith(f"command line, {word}"), text
    assert (mistakes[0].path, (mistakes[0].nearest[:1] or ("",))[0]) == (path, meant)
    assert piece in text


def test_every_mistake_is_reported_at_once_in_the_order_of_the_file(refuse: Callable[..., list[Any]]) -> None:
    text = """\
sed: 0
data: {name: spot, batchsize: 64, shuffle: 1}
model:
  name: dence
  hiden: [32]
  activation: rellu
optimiser: {name: Descent, learning_rate: 1e-3, momentum: 2, schedule: {name: wav, warm_up: 1}}
regularizers:
  drop: 0.2
  norm:
  Soften: {amount: "0.1"}
  teach: {low: x}
trainer: {epoch: 20, device: gpu, precision: float32, lr: 3, eval_every: 0}
trackers: [board]
"""
    mistakes = refuse(text, "trainer.steps=many", "nonsense")
    places = [str(m.origin) for m in mistakes]
    lines = [m.origin.line for m in mistakes if m.origin.file]
    assert lines == sorted(lines)
    assert [p for p in places if p.startswith("command line")] == places[-2:]
    assert [m.path for m in mistakes[:-2]] == [
        "sed",
        "data.name",
        "data.batchsize",
        "data.shuffle",
        "model.name",
        "model.hiden",
        "model.activation",
        "optimiser",
        "optimiser.name",
        "optimiser.learning_rate",
        "optimiser.momentum",
        "optimiser.schedule.name",
        "optimiser.schedule.warm_up",
        "regularizers.drop",
        "regularizers.norm",
        "regularizers.Soften",
        "regularizers.Soften.amount",
        "regularizers.teach.teacher",
        "regularizers.teach.low",
        "trainer.epoch",
        "trainer.device",
        "trainer.precision",
        "trainer.lr",
        "trainer.eval_every",
        "trackers",
    ]
