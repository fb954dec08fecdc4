"""What every other room may use: errors, deprecation, the nearest name, keys of random streams."""
