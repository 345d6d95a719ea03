"""How a reference function becomes a `KernelTask`: inputs, shape cases, tracing, the float64 oracle."""
