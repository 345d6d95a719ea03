"""Modelled times held against published ones: the rows, what compilers made of them, and the fit.

``published.csv``: median device times on a v6e as the JAXBench results of 2026 name them, taken with compilers of early
2026 (jax 0.6.2 to 0.9.2). ``program`` is the name in ``jaxbench.calibration``, ``remark`` what is known about the row.
``terms-jax-*.json``: what the model needs to know of each program, as one compiler made it (``python -m
maxkernel_nb.tpu.calibrate --compile``). ``leave_one_out.csv``: each row modelled with constants that were fitted
without it (``--fit``).
"""
