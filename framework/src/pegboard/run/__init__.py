"""The life of a run: begin, resume, extend, finish, diagnose, and where its environment is noted."""
