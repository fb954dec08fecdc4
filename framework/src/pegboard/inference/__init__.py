"""A trained model: load its weights, predict, sample, generate, and answer in words, tables and pictures."""
