"""What other trainers and command lines call things, and what they are called here."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.nearest import nearest, score

# Dotted path of a key = what Lightning, Hydra, transformers, Keras, timm and scripts call it.
_KEYS = """
trainer.epochs = epochs max_epochs num_epochs n_epochs num_train_epochs train_epochs total_epochs epoch
    nepochs
trainer.steps = steps max_steps num_steps total_steps train_steps max_iter max_iters num_iterations
    iterations iters n_iter num_train_steps max_updates
trainer.device = device gpus gpu devices num_gpus n_gpu gpu_id gpu_ids accelerator cuda use_cuda no_cuda
    use_cpu
trainer.precision = amp use_amp fp16 bf16 tf32 mixed_precision half dtype torch_dtype
trainer.accumulate = accumulate_grad_batches gradient_accumulation_steps gradient_accumulation grad_accum
    grad_accumulation accumulation_steps grad_accum_steps
trainer.clip = gradient_clip_val gradient_clip max_grad_norm grad_clip clip_grad clip_grad_norm
    gradient_clipping clipnorm clip_norm grad_norm_clip
trainer.clip_by = gradient_clip_algorithm clip_mode
trainer.eval_every = check_val_every_n_epoch val_check_interval eval_steps evaluation_strategy
    eval_strategy eval_interval val_interval val_every validate_every test_every
trainer.log_every = log_every_n_steps logging_steps log_interval log_freq print_freq print_every
    logging_interval
trainer.save_every = save_steps save_interval checkpoint_every save_freq checkpoint_interval ckpt_every
    every_n_train_steps save_strategy
trainer.keep = save_total_limit save_top_k max_to_keep keep_last
trainer.monitor = metric_for_best_model monitor_metric best_metric
trainer.mode = greater_is_better monitor_mode
trainer.ema = ema_decay model_ema ema_momentum
trainer.compile = torch_compile compile_model jit_compile
trainer.deterministic = cudnn_deterministic full_determinism benchmark
trainer.threads = num_threads n_threads torch_threads
trainer.folds = n_splits n_folds num_folds kfold k_folds cv
optimizer.lr = learning_rate lr base_lr init_lr lr0
optimizer.schedule = lr_scheduler lr_scheduler_type scheduler sched lr_schedule
optimizer.schedule.warmup = warmup num_warmup_steps warmup_steps warmup_epochs warmup_ratio lr_warmup_steps
data.batch_size = per_device_train_batch_size batch_size train_batch_size batchsize bs micro_batch_size
    global_batch_size
data.eval_batch_size = per_device_eval_batch_size val_batch_size test_batch_size valid_batch_size
data.workers = workers num_workers dataloader_num_workers n_workers loader_workers num_proc
data.drop_last = dataloader_drop_last
model.weights = pretrained init_from load_from checkpoint ckpt pretrained_model_name_or_path finetune_from
    load_weights init_checkpoint
seed = seed_everything random_seed random_state manual_seed rng_seed torch_seed
name = run_name experiment_name exp_name experiment
optimizer = optim
objective = loss_function criterion loss_fn
trackers = logger loggers report_to
regularizers = callbacks
"""

# What to do <- keys and options for which there is no key here.
_INSTEAD = """
where run folders are made is said on the command line: --root DIR <- output_dir default_root_dir log_dir
    logging_dir save_dir out_dir work_dir hydra
a run goes on with: pegboard resume RUN <- resume resume_from_checkpoint ckpt_path resume_from auto_resume
without progress: --quiet on the command line <- enable_progress_bar disable_tqdm verbose progress_bar
    enable_model_summary
a trial of few steps: trainer.steps=1; without any: pegboard check, or pegboard explain <- fast_dev_run
    overfit_batches limit_train_batches max_train_samples dry_run
where time goes: pegboard train CONFIG --profile <- profiler profile
a run has one device: trainer.device <- strategy num_nodes nodes nproc nproc_per_node ddp fsdp deepspeed
    distributed local_rank tpu_cores sync_batchnorm
a command trains one config: start several from a loop, each with its own key=value <- m multirun sweeper
    launcher sweep
trainer.folds=5 trains one run for each of 5 folds <- cross_validation
a config names parts and makes no calls <- _partial_ _args_ _recursive_
"""


def _table(text: str, sign: str) -> dict[str, str]:
    """Each word of the lines `answer sign words`, which go on where they are indented."""
    rows = [row.partition(f" {sign} ") for row in text.strip().replace("\n    ", " ").split("\n")]
    return {word: answer for answer, _, words in rows for word in words.split()}


KEYS = _table(_KEYS, "=")
INSTEAD = _table(_INSTEAD, "<-")

# Options of other command lines.
_CONFIG = ("config", "config_name", "config_file", "cfg", "config_path", "config_dir", "c", "f", "conf")
_OVERRIDE = ("o", "opts", "override", "overrides", "set", "cfg_options")


def plain(word: str) -> str:
    """A word without dashes and capitals, as the tables have it."""
    return word.strip().lower().replace("-", "_")


def option(words: Sequence[str], known: Sequence[str]) -> str:
    """What to write instead of an option that a command has not; the first word is it, the next its value."""
    name, equals, value = words[0].lstrip("-+").partition("=")
    if not equals:
        value = next((word for word in words[1:2] if not word.startswith("-")), "")
    bare, near = plain(name), nearest(words[0], known, 1)
    if bare in _CONFIG:
        return f"the config is the first word: {value or 'config.yaml'}"
    if bare in _OVERRIDE:
        return f"values need no option before them: {value or 'trainer.epochs=3'}"
    if bare in INSTEAD:
        return INSTEAD[bare]
    if near and bare not in KEYS and score(words[0], near[0]) >= 0.75:
        return f"did you mean {near[0]}?"
    if "." in name or bare in KEYS or words[0].startswith("--"):
        return f"values of the config have no dashes: {KEYS.get(bare, name)}={value or 'value'}"
    return ""


def instead(key: str) -> str:
    """What to do where another trainer has this key and here is none; "" where nothing is known of it."""
    return INSTEAD.get(plain(key), "")


def key_here(key: str) -> str:
    """The dotted path of the key that does what this one does elsewhere; "" where nothing is known of it."""
    return KEYS.get(plain(key), "")
