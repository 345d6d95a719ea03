"""Tasks 18k to 50k: a contraction and what follows it, after KernelBench level 2."""
