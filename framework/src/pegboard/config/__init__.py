"""Configs: read and merged with positions (load), checked in full (check), described (schema)."""
