"""jaxbench: 50 JAX tasks (17 production kernels, 33 fusions), with inputs that make shortcuts show."""

from jaxbench.registry import BenchTask, published_inputs, task, tasks

__all__ = ["BenchTask", "published_inputs", "task", "tasks"]
