"""What the files and folders of a run are called; no other module of the core spells them.

A config may name a trained model, which is looked for before anything of `store` may be imported, so the
names that this needs come from there.
"""

from __future__ import annotations

from ..config.trained_models import CHECKPOINTS as CHECKPOINTS
from ..config.trained_models import FOLD as FOLD
from ..config.trained_models import LATEST as LATEST
from ..config.trained_models import MANIFEST as MANIFEST
from ..config.trained_models import RESULT as RESULT
from ..config.trained_models import WEIGHTS as WEIGHTS

CONFIG = "config.yaml"  # resolved: training from it alone repeats the run
PLAN = "plan.txt"  # what explain printed; who carries the run out has locked it
ORIGINS = "origins.json"  # where each value of the config came from
ENVIRONMENT = "environment.json"  # versions, plugins, hardware, data, git
DIFF = "git.diff"  # what was changed and not committed
METRICS = "metrics.jsonl"  # a row for each time that something was measured
SUMMARY = "summary.json"  # how it ended
TABLES = "tables.json"  # of the last evaluation, as a confusion matrix
PAGE = "report.html"
FIGURES = "figures"  # folder of pictures
CURVES = "curves.png"  # one of them
DATA = "data"  # folder of a run or a recipe with the files that its data set keeps
PROFILE = "profile"  # folder with what --profile measured
STATE = "state.pt"  # of a checkpoint: optimizers, tricks, random streams, position
