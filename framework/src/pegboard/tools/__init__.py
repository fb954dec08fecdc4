"""What commands and the Python interface do besides training: compare, doctor, new, profile, folds, zoo."""
