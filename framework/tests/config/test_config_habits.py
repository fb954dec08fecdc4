"""Keys and options of other trainers are answered with what does the same here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pegboard.cli import main
from pegboard.config import other_trainers
from pegboard.config.errors import Mistake
from pegboard.config.fields import describe
from pegboard.config.moved_fields import LEFT
from pegboard.config.nodes import Trainer
from pegboard.config.sections import top_keys
from pegboard.contract.options import DataOptions, ModelOptions

Refuse = Callable[..., list[Mistake]]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("trainer.max_epochs=3", "epochs"),
        ("trainer.n_epochs=3", "epochs"),
        ("num_train_epochs=3", "trainer.epochs"),
        ("max_steps=3", "trainer.steps"),
        ("trainer.learning_rate=1", "optimizer.lr"),
        ("trainer.lr=1", "optimizer.lr"),
        ("optimizer.learning_rate=1", "lr"),
        ("lr=1", "optimizer.lr"),
        ("trainer.batch_size=3", "data.batch_size"),
        ("per_device_train_batch_size=3", "data.batch_size"),
        ("trainer.gpus=1", "device"),
        ("trainer.accelerator=gpu", "device"),
        ("trainer.fp16=true", "precision"),
        ("trainer.gradient_clip_val=1", "regularizers.bound.size"),
        ("max_grad_norm=1", "regularizers.bound.size"),
        ("trainer.accumulate_grad_batches=2", "accumulate"),
        ("gradient_accumulation_steps=2", "trainer.accumulate"),
        ("trainer.check_val_every_n_epoch=2", "eval_every"),
        ("trainer.log_every_n_steps=2", "log_every"),
        ("save_total_limit=2", "trainer.keep"),
        ("trainer.save_top_k=2", "keep"),
        ("metric_for_best_model=loss", "trainer.monitor"),
        ("trainer.num_workers=3", "data.workers"),
        ("data.num_workers=3", "workers"),
        ("seed_everything=3", "seed"),
        ("trainer.random_seed=3", "seed"),
        ("trainer.lr_scheduler=x", "optimizer.schedule"),
        ("optimizer.warmup_steps=3", "optimizer.schedule.warmup"),
        ("model.pretrained=x", "weights"),
        ("trainer.n_splits=5", "folds"),
        ("trainer.logger=x", "trackers"),
        ("trainer.callbacks=[x]", "regularizers"),
        ("loss=x", "objective"),
        ("trainer.monitr=x", "monitor"),
        ("data.shuffel=true", "shuffle"),
    ],
)
def test_a_key_of_another_trainer_is_answered_with_the_one_here(
    refuse: Refuse, base: str, word: str, meant: str
) -> None:
    first = refuse(base, word)[0]
    assert first.message.startswith("unknown key") and first.nearest[0] == meant
    assert len(set(first.nearest)) == len(first.nearest)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("trainer.strategy=ddp", "one device: trainer.device"),
        ("trainer.num_nodes=2", "one device"),
        ("trainer.nproc=2", "one device"),
        ("trainer.default_root_dir=x", "--root DIR"),
        ("output_dir=x", "--root DIR"),
        ("hydra.run.dir=x", "--root DIR"),
        ("resume_from_checkpoint=x", "pegboard resume RUN"),
        ("trainer.fast_dev_run=true", "trainer.steps=1"),
        ("trainer.enable_progress_bar=false", "--quiet"),
        ("trainer.profiler=simple", "--profile"),
    ],
)
def test_a_key_that_has_none_like_it_is_answered_with_what_to_do(
    refuse: Refuse, base: str, word: str, said: str
) -> None:
    (mistake,) = refuse(base, word)
    assert said in mistake.hint and mistake.nearest == ()


def test_every_key_that_is_named_is_one() -> None:
    keys = set(top_keys()) | {"optimizer.lr", "optimizer.schedule", "optimizer.schedule.warmup"}
    for section, cls in (("trainer", Trainer), ("data", DataOptions), ("model", ModelOptions)):
        keys |= {f"{section}.{field.name}" for field in describe(cls)}
    assert set(other_trainers.KEYS.values()) <= keys | set(LEFT)
    assert not set(other_trainers.KEYS) & set(other_trainers.INSTEAD)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trainer.epochs=3"], "has no option --trainer.epochs=3: values of the config have no dashes"),
        (["--trainer.epochs", "3"], "no dashes: trainer.epochs=3"),
        (["--lr", "0.1"], "no dashes: optimizer.lr=0.1"),
        (["--max-epochs=2"], "no dashes: trainer.epochs=2"),
        (["--batch-size", "3", "--max-epochs=2"], "no dashes: data.batch_size=3"),
        (["--seed", "3"], "no dashes: seed=3"),
        (["-m"], "a command trains one config"),
        (["--multirun", "model.depth=1,2"], "a command trains one config"),
        (["--config-name", "x"], "the config is the first word: x"),
        (["-c", "x.yaml"], "the config is the first word: x.yaml"),
        (["-o", "model.depth=3"], "values need no option before them: model.depth=3"),
        (["--quite"], "did you mean --quiet?"),
        (["--profil"], "did you mean --profile?"),
        (["--resume"], "pegboard resume RUN"),
        (["--dry-run"], "pegboard check"),
        (["--strategy", "ddp"], "one device"),
        (["-z"], "has no option -z\nall options: pegboard train --help"),
    ],
)
def test_an_option_of_another_command_line_is_answered(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["train", "cfg.yaml", *words])
    assert raised.value.code == 2
    text = capsys.readouterr().err
    assert said in text and "usage:" not in text
