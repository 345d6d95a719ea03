"""A kernel that says it speaks Ruby and runs nothing, for front ends: ``python -m other_language -f FILE``."""

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class OtherKernel(Kernel):
    implementation, implementation_version, banner = "other", "1", "other"
    language_info = {"name": "ruby", "mimetype": "text/x-ruby", "file_extension": ".rb"}  # noqa: RUF012

    async def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=OtherKernel)
