"""A seccomp filter for candidate workers: no new processes, no programs, no sockets, no reach into other processes.

It holds for root too (where process limits do not), for native code, and cannot be lifted. Linux on x86-64 and arm64;
elsewhere ``forbid`` answers False and the audit hook is the only fence.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

# Numbers: x86-64 (arch/x86/entry/syscalls/syscall_64.tbl) and arm64 (include/uapi/asm-generic/unistd.h) of Linux.
_X86 = {
    "seccomp": 317, "clone": 56, "clone3": 435, "prlimit64": 302,
    "denied": [
        41,  # socket
        53,  # socketpair
        57,  # fork
        58,  # vfork
        59,  # execve
        322,  # execveat
        62,  # kill (abort and raise use tgkill)
        101,  # ptrace
        109,  # setpgid
        112,  # setsid
        160,  # setrlimit
        165,  # mount
        272,  # unshare
        298,  # perf_event_open
        308,  # setns
        310,  # process_vm_readv
        311,  # process_vm_writev
        321,  # bpf
        424,  # pidfd_send_signal
        425,  # io_uring_setup
        434,  # pidfd_open
        438,  # pidfd_getfd
    ],
}  # fmt: skip
_ARM = {
    "seccomp": 277, "clone": 220, "clone3": 435, "prlimit64": 261,
    "denied": [198, 199, 221, 281, 129, 117, 154, 157, 164, 40, 97, 241, 268, 270, 271, 280, 424, 425, 434, 438],
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, _X86), "aarch64": (0xC00000B7, _ARM)}
_X32 = 0x40000000  # x86-64's other numbering of the same calls
_CLONE_THREAD = 0x00010000
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST, _THIRD = 0, 4, 16, 32  # offsets in struct seccomp_data (arguments: low halves)
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1


def forbid() -> bool:
    """Installs the filter in every thread of this process, for good. False where that is not possible."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    architecture, calls = _MACHINES[platform.machine()]
    code = program(architecture, calls)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return libc.syscall(calls["seccomp"], _SET_FILTER, _ALL_THREADS, ctypes.c_char_p(header)) == 0


def program(architecture: int, calls: dict) -> bytes:
    """The BPF code: another architecture kills, denied calls give EPERM, clone only makes threads, no clone3."""
    no, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, no)]
    for number in calls["denied"]:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, no)]
    steps += [(_EQUAL, 0, 1, calls["clone3"]), (_RETURN, 0, 0, unknown)]  # glibc falls back to clone
    steps += _only_if(calls["clone"], _FIRST, (_BITS, 0, 1, _CLONE_THREAD), no)
    steps += [(_EQUAL, 0, 6, calls["prlimit64"])]  # reading limits is harmless: the new-limit pointer must be null
    steps += [(_LOAD, 0, 0, _THIRD), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _THIRD + 4), (_EQUAL, 0, 1, 0)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, no)]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _only_if(
    number: int, argument: int, test: tuple[int, int, int, int], otherwise: int
) -> list[tuple[int, int, int, int]]:
    allowed, refused = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, otherwise)
    return [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, argument), test, allowed, refused]
