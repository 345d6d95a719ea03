"""Profiler files made by hand: what a TPU's planes look like, as text protos turned into bytes by jax itself."""

from dataclasses import dataclass, field


@dataclass
class Event:
    """Nanoseconds from the start of its line; ``stats`` are numbers or texts."""

    name: str
    start: float
    ns: float
    stats: dict = field(default_factory=dict)


def plane(name, lines, offset_ns=1_000_000):
    """``lines``: events by line name, or (events, the line's own offset)."""
    names, stats = {}, {}
    text = [f'planes {{ id: 1 name: "{name}"']
    for number, (line, events) in enumerate(lines.items()):
        events, offset = events if isinstance(events, tuple) else (events, offset_ns)
        text.append(f'lines {{ id: {number} name: "{line}" timestamp_ns: {offset}')
        for event in events:
            key = names.setdefault(event.name, len(names) + 1)
            text.append(f"events {{ metadata_id: {key} offset_ps: {round(event.start * 1000)} "
                        f"duration_ps: {round(event.ns * 1000)}")
            for stat, value in event.stats.items():
                number = stats.setdefault(stat, len(stats) + 1)
                kind = f'str_value: "{value}"' if isinstance(value, str) else f"int64_value: {value}"
                text.append(f"stats {{ metadata_id: {number} {kind} }}")
            text.append("}")
        text.append("}")
    for kind, known in (("event_metadata", names), ("stat_metadata", stats)):
        for label, key in known.items():
            quoted = label.replace('"', "'")
            text.append(f'{kind} {{ key: {key} value {{ id: {key} name: "{quoted}" }} }}')
    return " ".join([*text, "}"])


def serialised(*planes):
    from jax.profiler import ProfileData

    return ProfileData.text_proto_to_serialized_xspace(" ".join(planes))


def tpu(runs, number=0, offset_ns=1_000_000, ops_per_run=2, gap=500.0, more=None):
    """A chip's plane on which ``runs`` (program, ns) came one after another, each filled by its ops."""
    modules, ops, at = [], [], 0.0
    for run, (program, ns) in enumerate(runs):
        modules.append(Event(f"jit_{program}({hash(program) % 1000})", at, ns, {"run_id": run}))
        each = ns / max(ops_per_run, 1)
        ops += [Event(f"%fusion.{n} = f32[8]{{0}} fusion(...)", at + n * each, each,
                      {"hlo_category": "fusion", "flops": 1000, "bytes_accessed": 2000}) for n in range(ops_per_run)]
        at += ns + gap
    return plane(f"/device:TPU:{number}", {"Steps": [], "XLA Modules": modules, "XLA Ops": ops, **(more or {})},
                 offset_ns)
