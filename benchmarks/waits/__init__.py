"""What wait.py runs beside Pegboard: the same work in a plain script, Lightning and HF Trainer."""
