"""Graphs in files, read by another process, and from the shell."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from graph_programs import same
from weft import nn
from weft.graph import GraphError
from weft.io.safetensors import load_safetensors, safetensors_metadata, save_safetensors
from weft_command import main as command


def main(arguments: list[str]) -> int:
    """``weft graph``."""
    return command(["graph", *arguments])


@pytest.fixture
def graph():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = weft.optim.Adam(net.parameters(), lr=0.1)
    x, y = weft.randn(6, 4), weft.tensor([0, 1, 2, 0, 1, 2])
    with weft.graph.record(values=True) as g:
        loss = F.cross_entropy(F.dropout(net(x), 0.3), y)
        loss.backward()
        optimizer.step()
    return g


def test_a_training_step_comes_back(graph, tmp_path):
    path = tmp_path / "step.weft"
    graph.save(path, values=True)
    again = weft.graph.load(path)
    assert same(again.run(), graph.run())
    assert [(n.name, n.kind, n.op) for n in again] == [(n.name, n.kind, n.op) for n in graph]
    assert not weft.graph.diff(graph, again)
    assert again["2.relu"].source == graph["2.relu"].source
    assert same(again["2.relu"].value, graph["2.relu"].value)
    assert again.modules == graph.modules
    weight = again["0.weight"].value
    loss = again.run()
    loss.backward()
    assert again["0.weight"].grad is not None and weight.shape == (8, 4)
    assert again.replace("2.relu", F.gelu).run().requires_grad


def test_another_process_gets_the_same_bits(graph, tmp_path):
    path = tmp_path / "step.weft"
    graph.save(path)
    code = (
        "import sys, weft; g = weft.graph.load(sys.argv[1]); "
        "print(g.run().detach().numpy().tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == graph.run().detach().numpy().tobytes().hex()


def test_all_kinds_of_values(tmp_path):
    x = weft.randn(4, 5, 6).transpose(0, 2)
    z = weft.randn(3, dtype=weft.complex128)
    h = weft.randn(3).bfloat16()
    with weft.graph.record() as g:
        a = x[..., None, 1:3].sum((0, 1)) + float("inf")
        b = (z * (1 + 2j)).abs()
        c = (h * 2).float().clamp(min=None, max=1.0)
        d = x[weft.tensor([0, 2]), :, 1].var(0)
        e = weft.nn.functional.pad(x, (1, 2), value=float("nan"))
        f = x.to(memory_format=weft.contiguous_format).half().to(weft.int32)
        x.clone()[1:, 0] = 3.0
    g.save(tmp_path / "kinds.weft")
    again = weft.graph.load(tmp_path / "kinds.weft")
    mine, theirs = g.run(), again.run()
    assert all(map(same, mine, theirs)) and len(mine) == len(theirs)
    assert any(same(a, t) for t in theirs) and any(same(b, t) for t in theirs)
    assert all(any(same(v, t) for t in theirs) for v in (c, d, e, f))


def test_no_code_is_in_the_file(graph, tmp_path):
    path = tmp_path / "step.weft"
    graph.save(path)
    text = safetensors_metadata(path)["weft_graph"]
    assert json.loads(text)["weft_graph"] == 2
    load_safetensors(path)  # any reader of the format can have the tensors


def test_functions_are_refused_by_name(tmp_path):
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    path = tmp_path / "f.weft"
    w = weft.ones(2, requires_grad=True)
    with weft.graph.record() as g:
        Twice.apply(w).sum()
    with pytest.raises(GraphError, match="'Twice' is a call of the Python function"):
        g.save(path)
    assert not path.exists()


def test_a_save_that_fails_leaves_the_old_file(graph, tmp_path):
    path = tmp_path / "step.weft"
    graph.save(path)
    before = path.read_bytes()
    x = weft.ones(2)
    with weft.graph.record() as g:
        x * 2
    g._specs[1] = g._specs[1].but(attrs={"key": object()})
    with pytest.raises(GraphError, match="'mul' holds a object, which a graph file can't hold"):
        g.save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["step.weft"]


def damaged(path, change):
    found = json.loads(safetensors_metadata(path)["weft_graph"])
    change(found)
    save_safetensors(load_safetensors(path), path, {"weft_graph": json.dumps(found)})


def linear(d):
    return next(x for x in d["nodes"] if x["op"] == "linear_with_bias")


def gradient(d):
    return next(x for x in d["nodes"] if x["op"] == "AccumulateGrad")


def update(d):
    return next(x for x in d["nodes"] if x["kind"] == "optimizer")


def last(d):
    return [d["nodes"][-1]["id"], 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(weft_graph=99), "version 99"),
        (lambda d: d["nodes"].reverse(), "does not come before it"),
        (lambda d: d["nodes"][5].update(op="no_such_op", kind="forward"), "no_such_op"),
        (lambda d: d["nodes"][0].pop("attrs"), "damaged"),
        (lambda d: d["outputs"].append([10_000, 0]), "damaged"),
        (lambda d: d["nodes"][0]["leaf"].update(name="t999"), "damaged"),
        (lambda d: d["nodes"][5]["args"].append({"code": "1"}), "unknown kind"),
        (lambda d: d.update(weft_graph=True), "version True"),
        (lambda d: d.update(nodes=None), "'nodes' is None"),
        (lambda d: d.update(nodes=[1]), "the node 1"),
        (lambda d: d.update(passes=[]), "in pass 0"),
        (lambda d: d.update(modules={"0": 1}), "other things than names"),
        (lambda d: d.update(order=["nobody"]), "other things than names"),
        (lambda d: d.update(updates=[[9999, [0, 0]]]), "of no leaf"),
        (lambda d: d["passes"][0].update(roots=[[last(d), None]]), "comes before what it is"),
        (lambda d: linear(d)["args"].__setitem__(0, {"ref": [0, 7]}), "reads result 7 of"),
        (lambda d: linear(d)["args"].__setitem__(0, {"ref": [0, -1]}), "reads result -1 of"),
        (lambda d: linear(d)["args"].__setitem__(0, {"ref": [0.0, 0]}), "does not come before"),
        (lambda d: linear(d)["args"].__setitem__(0, {"ref": last(d)}), "does not come before"),
        (lambda d: linear(d).update(results=[[[2**40, 2**40], "float32"]]), "no memory"),
        (lambda d: linear(d).update(results=[[[-1], "float32"]]), "is not a shape"),
        (lambda d: linear(d).update(results=[["ab", "float32"]]), "is not a shape"),
        (lambda d: linear(d).update(results=[[[1], "float99"]]), "float99"),
        (lambda d: linear(d).update(results=[]), "it has 0 results"),
        (lambda d: linear(d).update(several=True), "does not give 1 results"),
        (lambda d: linear(d).update(kind="evil"), "'evil' is unknown"),
        (lambda d: linear(d).update(op="os.system"), "no op is registered"),
        (lambda d: linear(d).update(op=["mul"]), "'op' is"),
        (lambda d: linear(d).update(name=5), "'name' is 5"),
        (lambda d: linear(d).update(name="x"), "two nodes have one name"),
        (lambda d: linear(d).update(id=0), "another node's"),
        (lambda d: linear(d).update(id=True), "'id' is True"),
        (lambda d: linear(d).update(module="a." * 5000), "5000 modules"),
        (lambda d: linear(d).update(module=5), "'module' is 5"),
        (lambda d: linear(d).update(source=5), "'source' is 5"),
        (lambda d: linear(d).update(forward="x"), "'forward' is 'x'"),
        (lambda d: linear(d).update(attrs=[1]), "'attrs' is"),
        (lambda d: linear(d).update(leaf=d["nodes"][0]["leaf"]), "no value of its own"),
        (lambda d: linear(d).update(kept=[]), "0 values are kept of 1"),
        (lambda d: d["nodes"][0]["leaf"].update(order=[0, 0]), "is not an order of 2 dimensions"),
        (lambda d: d["nodes"][0]["leaf"].update(complex=[3]), "damaged"),
        (lambda d: gradient(d)["attrs"].update({"pass": 99}), "in pass 99"),
        (lambda d: gradient(d)["attrs"].update({"of": gradient(d)["id"]}), "it is the gradient of"),
        (lambda d: gradient(d).update(attrs={}), "there is no 'pass'"),
        (lambda d: update(d).update(forward=None), "it updates None"),
    ],
)
def test_damaged_files_are_refused(graph, tmp_path, change, message):
    path = tmp_path / "step.weft"
    graph.save(path)
    damaged(path, change)
    with pytest.raises(GraphError, match=message):
        weft.graph.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{nope", "damaged"),
        ("[1]", "version None"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
)
def test_other_json_is_refused(tmp_path, text, message):
    path = tmp_path / "j.weft"
    save_safetensors({"a": weft.ones(2)}, path, {"weft_graph": text})
    with pytest.raises(GraphError, match=message):
        weft.graph.load(path)


def test_values_nested_without_end_are_refused(graph, tmp_path):
    path = tmp_path / "step.weft"
    graph.save(path)
    text = safetensors_metadata(path)["weft_graph"]
    nest = '{"tuple":[' * 200 + "1" + "]}" * 200
    deep = text.replace('"attrs":{', f'"attrs":{{"a":{nest},', 1)
    deep = deep.replace(",}", "}")
    save_safetensors(load_safetensors(path), path, {"weft_graph": deep})
    with pytest.raises(GraphError, match="nested too deeply"):
        weft.graph.load(path)


def test_files_that_are_cut_or_longer_are_refused(graph, tmp_path):
    path = tmp_path / "step.weft"
    graph.save(path)
    whole = path.read_bytes()
    for part in (b"", whole[:4], whole[:8], whole[: len(whole) // 2], whole[:-1], whole + b"x"):
        path.write_bytes(part)
        with pytest.raises(GraphError, match=r"step.weft' is not a valid graph file"):
            weft.graph.load(path)


def test_what_had_no_gradient_has_none_when_it_comes_back(tmp_path):
    w = weft.ones(2, requires_grad=True)
    with weft.graph.record() as g:
        with weft.no_grad():
            fixed = w * 2
        loss = (fixed * w).sum()
    g.save(tmp_path / "g.weft")
    again = weft.graph.load(tmp_path / "g.weft")
    replayed = again.run()
    assert weft.equal(replayed, loss)
    replayed.backward()
    assert again["w"].grad.tolist() == [2.0, 2.0]


def test_parts_and_edits_come_back(graph, tmp_path):
    path = tmp_path / "part.weft"
    edited = graph.insert_after(graph.outputs[0], lambda t: t * 2)
    for part in (graph.slice_to("2.relu"), graph.subgraph("x", "2.relu"), edited):
        part.save(path)
        again = weft.graph.load(path)
        given = () if part is edited else (graph["x"].value,)
        assert same(again(*given), part(*given))


def test_a_file_of_tensors_alone_is_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    save_safetensors({"a": weft.ones(2)}, path)
    with pytest.raises(GraphError, match="no graph"):
        weft.graph.load(path)


def test_subgraphs_keep_the_order_of_their_inputs(tmp_path):
    a, b = weft.randn(3), weft.randn(3)
    with weft.graph.record() as g:
        (a - b).exp()
    part = g.subgraph(["b", "a"], ["exp"])
    part.save(tmp_path / "p.weft")
    again = weft.graph.load(tmp_path / "p.weft")
    assert same(again(b, a), (a - b).exp()) and same(part(b, a), again(b, a))


# --- the shell -------------------------------------------------------------------------


@pytest.fixture
def path(graph, tmp_path):
    graph.save(tmp_path / "step.weft")
    return str(tmp_path / "step.weft")


def test_show(path, capsys):
    assert main(["show", path, "--depth", "9"]) == 0
    assert "2.relu" in capsys.readouterr().out
    assert main(["show", path, "--forward", "--as", "dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph")
    assert main(["show", path, "--as", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["weft_graph"] == 1


def test_diff_from_the_shell(graph, path, tmp_path, capsys):
    other = str(tmp_path / "other.weft")
    graph.replace("2.relu", F.gelu).save(other)
    assert main(["diff", path, path]) == 0
    assert main(["diff", path, other]) == 1
    assert "op relu -> gelu" in capsys.readouterr().out


def test_run_from_the_shell(graph, path, tmp_path, capsys):
    out = str(tmp_path / "out.npz")
    x = np.ones((6, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    assert main(["run", path, "--input", f"x={tmp_path / 'x.npy'}", "--output", out]) == 0
    (name,) = [n.name for n in graph.outputs]
    assert name in capsys.readouterr().out
    with np.load(out) as found:
        assert found[name] == graph.run(x=weft.tensor(x)).item()


def test_view_from_the_shell(path, tmp_path, capsys):
    pytest.importorskip("weft.graph.page")
    assert main(["view", path, path, "-o", str(tmp_path / "page.html")]) == 0
    assert "<html" in (tmp_path / "page.html").read_text().lower()


def test_view_writes_beside_the_file(path, tmp_path):
    folder = tmp_path / "a.b"
    folder.mkdir()
    bare = folder / "step"
    bare.write_bytes((tmp_path / "step.weft").read_bytes())
    assert main(["view", str(bare)]) == 0 and main(["view", path]) == 0
    assert (folder / "step.html").exists() and (tmp_path / "step.html").exists()


def test_a_reader_that_has_enough_is_no_error(path):
    command = f"{sys.executable} -m weft graph show {path} --as json | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert len(done.stdout) == 10 and done.stderr == ""


def test_wrong_use_of_the_shell(path, capsys, tmp_path):
    (tmp_path / "x.npy").write_text("no array")
    assert main(["run", path, "--input", f"x={tmp_path / 'x.npy'}"]) == 2
    assert "x.npy' is not a .npy file of numbers" in capsys.readouterr().err
    np.save(tmp_path / "x.npy", np.ones((6, 3), np.float32))
    assert main(["run", path, "--input", f"x={tmp_path / 'x.npy'}"]) == 2
    assert "cannot be multiplied" in capsys.readouterr().err
    assert main(["show", path + ".missing"]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["run", path, "--input", "x"]) == 2
    assert "NAME=FILE.npy" in capsys.readouterr().err


def test_a_live_graph_is_saved_and_read_back(tmp_path):
    w = weft.ones(3, requires_grad=True)
    loss = (w * weft.tensor([1.0, 2.0, 3.0])).exp().sum()
    weft.graph.of(loss).save(tmp_path / "live.weft")
    assert same(weft.graph.load(tmp_path / "live.weft").run(), loss)
