"""Reporting: what people look at once a run is over: figures, tables, files, the learnt model, the course of a run."""
