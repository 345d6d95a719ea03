"""Tasks 1p to 17p: layers and kernels of production models."""
