"""`python -m pegboard`."""

import sys

from .cli import main

sys.exit(main())
