"""Errors of tracers, compilers and interpreters, told as kind, place, reason and remedy."""

from maxkernel_nb.tpu.diagnosis.diagnose import KINDS, Diagnosis, diagnose
from maxkernel_nb.tpu.diagnosis.kinds import FailureKind, Kind
from maxkernel_nb.tpu.diagnosis.places import source_line

__all__ = ["KINDS", "Diagnosis", "FailureKind", "Kind", "diagnose", "source_line"]
