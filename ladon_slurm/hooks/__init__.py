"""Beats from inside the training libraries: one line in a job's program (docs/beats.md).

Each module needs its library, which Ladon does not install: hooks.torch, hooks.lightning, hooks.transformers.
"""
