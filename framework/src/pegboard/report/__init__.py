"""What a person sees of a run: progress, tables, pictures; and trackers."""
