import contextlib
import os
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from maxkernel_nb.evaluate import wire


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for fd in ends:
        with contextlib.suppress(OSError):
            os.close(fd)


def send_in_background(fd, message):
    thread = threading.Thread(target=wire.send, args=(fd, message))
    thread.start()
    return thread


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32", "int8", "bool", "complex64"])
def test_arrays_cross_unchanged(pipe, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.arange(300_000).reshape(3, -1).astype(kind)[:, ::2]
    thread = send_in_background(pipe[1], wire.Message({"a": wire.describe(array)}, (wire.to_buffer(array), b"")))
    message = wire.receive(pipe[0], time.monotonic() + 20)
    thread.join()
    (back,) = wire.arrays([message.header["a"]], message.buffers[:1])
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes() and message.buffers[1] == b""


@pytest.mark.parametrize("junk", [b"\xff" * 64, b"SPEEDUP 9x" * 10, b"\0" * 7 + b"\1" + b"\0" * 8 + b"x"])
def test_what_is_no_message_is_refused(pipe, junk):
    os.write(pipe[1], junk)
    os.close(pipe[1])
    with pytest.raises(wire.WireError):
        wire.receive(pipe[0], time.monotonic() + 5)


def test_silence_ends_at_the_deadline_and_a_closed_end_is_noticed(pipe):
    with pytest.raises(wire.WireTimeout):
        wire.receive(pipe[0], time.monotonic() + 0.05)
    os.close(pipe[0])
    with pytest.raises(wire.WireError):
        wire.send(pipe[1], wire.Message({}))


@pytest.mark.parametrize("about", [{"dtype": "float32", "shape": [3]}, {"dtype": "nope", "shape": [2]}, {}])
def test_bytes_that_do_not_fit_their_description_are_refused(about):
    with pytest.raises(wire.WireError):
        wire.from_buffer(about, b"12345678")
