"""The tests need no network, and say so to those who would ask for one."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
