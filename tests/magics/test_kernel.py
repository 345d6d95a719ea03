"""The same cells in a real IPython kernel: what a person's client sees, and what a batch client gets."""

import os
from pathlib import Path

import pytest
from notebook_kernel import CellError, NotebookKernel

SUPPORT = Path(__file__).resolve().parents[1] / "support"
SCRIPTED = "import fake_api, pathlib\napi = fake_api.install(get_ipython(), pathlib.Path.cwd())"
CELL = "%%maxkernel auto {}\ndef f(x):\n    return x\n"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    made = NotebookKernel(tmp_path_factory.mktemp("kernel"), env={"PYTHONPATH": os.pathsep.join(paths)})
    made.run(SCRIPTED)
    yield made
    made.shutdown()


def shown(outputs):
    return [o for o in outputs if o["type"] in ("display_data", "execute_result", "stream")]


def test_a_person_gets_one_live_panel_and_the_cell_returns(kernel):
    outputs = shown(kernel.run(CELL.format("")))
    assert len(outputs) == 1 and WIDGET in outputs[0]["data"]
    assert kernel.value("_.id in api.live")
    kernel.run("_run = list(api.live.values())[-1].wait(10)")
    kernel.run("%maxkernel reject")


def test_a_run_as_a_later_cells_value_shows_its_panel_again(kernel):
    kernel.run(CELL.format("--policy propose"))
    kernel.run("r = list(api.live.values())[-1].wait_end(10)")
    outputs = shown(kernel.run("r"))
    assert len(outputs) == 1 and WIDGET in outputs[0]["data"]


def test_a_batch_client_gets_the_finished_report_and_nothing_else(kernel):
    outputs = shown(kernel.run(CELL.format(""), allow_stdin=False))
    assert len(outputs) == 1
    data = outputs[0]["data"]
    assert set(data) == {"text/html", "text/plain"}
    assert "<article" in data["text/html"]
    run = kernel.value("list(api.live)[-1]")
    assert data["text/plain"].startswith(f"maxkernel run {run}: ")
    assert kernel.value("api.calls[-1]['policy']") == "propose"


def test_show_in_a_batch_client_is_a_report_in_that_cell(kernel):
    kernel.run(CELL.format(""), allow_stdin=False)
    outputs = shown(kernel.run("%maxkernel show", allow_stdin=False))
    assert len(outputs) == 1 and "<article" in outputs[0]["data"]["text/html"]


def test_a_batch_run_that_needs_a_person_goes_red_with_the_remedy(kernel):
    with pytest.raises(CellError) as caught:
        kernel.run(CELL.format("--policy ask"), allow_stdin=False)
    assert caught.value.name == "ApprovalRequired"
    assert "--policy accept-verified" in caught.value.message
    kernel.run("%maxkernel stop", allow_stdin=False)


def test_an_error_is_one_red_line(kernel):
    with pytest.raises(CellError) as caught:
        kernel.run(CELL.format("--chip v6"))
    assert caught.value.traceback.startswith("UsageError: --chip got 'v6'")
    assert "\n" not in caught.value.traceback


def test_tab_completes_in_a_kernel(kernel):
    def tab(text):
        return kernel.client.complete(text, reply=True, timeout=20)["content"]["matches"]

    assert "auto" in tab("%%maxkernel a")
    assert "--chip" in tab("%%maxkernel auto --ch")
    assert "v6e" in tab("%%maxkernel auto --chip v")


def test_a_front_end_outside_the_panel_answers_a_run_over_its_comm(kernel):
    """The kernel's own comm machinery, as JupyterLab uses it."""
    client, heard = kernel.client, []

    def send(kind, data):
        content = {"comm_id": "front-end", "target_name": "maxkernel", "data": data}
        client.shell_channel.send(client.session.msg(kind, content))

    def hear(there):
        while not any(there(m) for m in heard):
            found = client.get_iopub_msg(timeout=20)
            if found["msg_type"] == "comm_msg" and found["content"]["comm_id"] == "front-end":
                heard.append(found["content"]["data"])
        return next(m for m in heard if there(m))

    def wish(number, command, **fields):
        send("comm_msg", {"version": 1, "id": f"w{number}", "command": f"maxkernel:{command}", **fields})
        return hear(lambda m: m.get("id") == f"w{number}")

    send("comm_open", {})
    assert wish(1, "hello")["ok"]
    kernel.run(CELL.format("").replace("auto", "hitl"))
    run = kernel.value("list(api.live.values())[-1].wait(10).id")
    assert wish(2, "look", run=run)["ok"]  # what was told during the cell went to that cell's reader
    assert hear(lambda m: m["notice"] == "maxkernel:question")["question"] == "plan:1"
    assert wish(3, "answer", run=run, question="plan:1", choice="finish")["ok"]
    hear(lambda m: m["notice"] == "maxkernel:run" and m["run"]["ended"] and m["run"]["id"] == run)
    assert kernel.value("list(api.live.values())[-1].state.questions['plan:1'].answer.via") == "lab"
    send("comm_close", {})
    kernel.run("%reload_ext maxkernel_nb")
    kernel.run(SCRIPTED)
