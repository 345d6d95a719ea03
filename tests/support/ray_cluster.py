"""A Ray cluster of two nodes on this machine, started so that a busy machine only makes it slow."""

import contextlib
import os
import sys
import time
from pathlib import Path

# Ray's own patience is meant for idle machines. Nothing here is watched, so nothing is reported either.
PATIENCE = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "300",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
_NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
_TRIES = 3


def patient():
    """Before ``ray`` is imported."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)


def two_nodes():
    """(cluster, its second node). Tries again when a node does not come up; then it ends with the nodes' logs."""
    patient()
    from ray.cluster_utils import Cluster

    reason = None
    for attempt in range(1, _TRIES + 1):
        cluster = Cluster()
        try:
            cluster.add_node(**_NODE)
            return cluster, cluster.add_node(**_NODE)
        except Exception as error:  # noqa: BLE001 - what Ray raises where a node is late
            reason = error
            sys.stdout.write(f"start {attempt} of the cluster: {type(error).__name__}: {str(error)[:300]}\n")
            with contextlib.suppress(Exception):
                cluster.shutdown()
            time.sleep(5 * attempt)
    raise SystemExit(f"no cluster of two nodes came up in {_TRIES} tries: {reason}\n{_logs()}")


def _logs(lines=20):
    """The ends of what the nodes wrote of themselves."""
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest" / "logs"
    found = []
    for name in ("raylet.out", "raylet.err", "gcs_server.out", "gcs_server.err"):
        with contextlib.suppress(OSError):
            found += [f"--- {name}", *(folder / name).read_text(errors="replace").splitlines()[-lines:]]
    return "\n".join(found)
