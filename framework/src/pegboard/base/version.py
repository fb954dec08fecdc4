"""The version of the core, and the number of the API that plugins see."""

__version__ = "0.2.0"
API = 2
