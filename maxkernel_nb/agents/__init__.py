"""The pool of sub-agents: one role a file, each a function over the run's ``Runtime``."""
