"""What reductions, softmax, normalisations, pools and recurrent operators refuse, and the shapes they infer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.harness import op
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.types import parse_type
from parax.errors import InvalidModel, UnsupportedOp

POOL = {"kernel_shape": [3, 3]}
LSTM = ["f32[4,2,3]", "f32[1,20,3]", "f32[1,20,5]"]


def node(name: str, operands: list[Any], attrs: dict[str, Any] | None = None, outputs: int = 1) -> Node:
    """A graph of one node; operands are type texts, arrays (constants) or None."""
    graph = Graph("test")
    values = []
    for i, o in enumerate(operands):
        if o is None:
            values.append(None)
        elif isinstance(o, str):
            values.append(graph.add_input(f"x{i}", parse_type(o)))
        else:
            values.append(graph.add_constant(np.asarray(o), f"x{i}"))
    return graph.add_node(op(name, **(attrs or {})), values, n_outputs=outputs, name="the.node")


@pytest.mark.parametrize(("name", "operands", "attrs", "message"), [
    ("ReduceSum", ["f32[2,3]", [9]], {}, "axis out of range"),
    ("ReduceSum", ["f32[2,3]", [0, -2]], {}, "duplicate"),
    ("ArgMax", ["f32[2,3]"], {"axis": 2}, "out of range"),
    ("ArgMax", ["f32[2,0]"], {"axis": 1}, "empty"),
    ("CumSum", ["f32[2,3]", 5], {}, "out of range"),
    ("CumSum", ["f32[2,3]", 0], {"reverse": 3}, "flags"),
    ("CumSum", ["f32[2,3]", "i64[2]"], {}, "one number"),
    ("Softmax", ["f32[2,3]"], {"axis": 7}, "out of range"),
    ("Softmax", ["f32[2,3]"], {"axis": -(2**63)}, "out of range"),
    ("Softmax", ["i32[2,3]"], {}, "wrong type"),
    ("BatchNormalization", ["f32[2,3,4]", "f32[4]", "f32[3]", "f32[3]", "f32[3]"], {}, "scale"),
    ("BatchNormalization", ["f32[2,3,4]", *["f32[3]"] * 4], {"training_mode": 2}, "flag"),
    ("BatchNormalization", ["f32[0,3,4]", *["f32[3]"] * 4], {"training_mode": 1}, "without elements"),
    ("BatchNormalization", ["f32[2,3,0]", *["f32[3]"] * 4], {"training_mode": 1}, "without elements"),
    ("InstanceNormalization", ["f32[2,3]", "f32[3]", "f32[3]"], {}, "spatial"),
    ("InstanceNormalization", ["f32[2,3,4]", "f32[2]", "f32[3]"], {}, "scale"),
    ("LayerNormalization", ["f32[2,3]", "f32[4]"], {}, "broadcast"),
    ("LayerNormalization", ["f32[2,3]", "f32[2,2,3]"], {}, "broadcast"),
    ("LayerNormalization", ["f32[2,3]", "f32[3]"], {"axis": 2}, "out of range"),
    ("GroupNormalization", ["f32[2,5,3]", "f32[5]", "f32[5]"], {"num_groups": 2}, "groups"),
    ("LpNormalization", ["f32[2,5]"], {"p": 3}, "norm"),
    ("LRN", ["f32[2,5,3]"], {"size": 0}, "size"),
    ("MaxPool", ["f32[2,5,3]"], POOL, "kernel_shape"),
    ("MaxPool", ["f32[2,5]"], {"kernel_shape": []}, "spatial"),
    ("MaxPool", ["f32[1,1,2,2]"], POOL, "larger than the padded input"),
    ("MaxPool", ["f32[1,1,9,9]"], {**POOL, "pads": [3, 0, 0, 0]}, "padding"),
    ("MaxPool", ["f32[1,1,9,9]"], {**POOL, "pads": [-1, 0, 0, 0]}, "pads"),
    ("MaxPool", ["f32[1,1,9,9]"], {**POOL, "strides": [0, 1]}, "strides"),
    ("AveragePool", ["f32[1,1,9,9]"], {**POOL, "auto_pad": "AROUND"}, "auto_pad"),
    ("GlobalMaxPool", ["f32[1,1]"], {}, "spatial"),
    ("LSTM", LSTM, {"hidden_size": 7}, "W must have shape"),
    ("LSTM", LSTM, {"hidden_size": 5, "direction": "sideways"}, "direction"),
    ("LSTM", LSTM, {"hidden_size": 5, "activations": ["Banana", "Tanh", "Tanh"]}, "activation"),
    ("LSTM", LSTM, {"hidden_size": 5, "activations": ["Tanh"]}, "number of activations"),
    ("LSTM", LSTM, {"hidden_size": 5, "clip": -1.0}, "clip"),
    ("LSTM", LSTM, {"hidden_size": 5, "direction": "bidirectional"}, "W must have shape"),
    ("LSTM", [*LSTM, "f32[1,39]"], {"hidden_size": 5}, "B must have shape"),
    ("LSTM", [*LSTM, None, "i32[3]"], {"hidden_size": 5}, "sequence_lens"),
    ("LSTM", [*LSTM, None, None, "f32[1,2,6]"], {"hidden_size": 5}, "initial_h"),
    ("GRU", ["f32[4,2]", "f32[1,15,3]", "f32[1,15,5]"], {"hidden_size": 5}, "rank 3"),
    ("RNN", ["f32[4,2,3]", "f32[1,5,3]", "f32[1,5,5]"], {"hidden_size": 5, "layout": 2}, "layout"),
], ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_refuses(name: str, operands: list[Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidModel, match=message) as error:
        node(name, operands, attrs)
    assert "the.node" in str(error.value)


@pytest.mark.parametrize(("name", "operands", "attrs"), [
    ("ReduceSum", ["f32[2,3]", "i64[1]"], {}),
    ("LayerNormalization", ["f32[2,3]", "f32[3]"], {"stash_type": 10}),
    ("LSTM", ["f64[4,2,3]", "f64[1,20,3]", "f64[1,20,5]"], {"hidden_size": 5}),
])  # fmt: skip
def test_says_what_is_not_supported(name: str, operands: list[Any], attrs: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedOp, match=r"the\.node"):
        node(name, operands, attrs)


@pytest.mark.parametrize(("name", "operands", "attrs", "types"), [
    ("ReduceSum", ["f32[N,3,S]", [-1]], {}, ["f32[N,3,1]"]),
    ("ReduceSum", ["f32[N,3,S]", [0, 2]], {"keepdims": 0}, ["f32[3]"]),
    ("ReduceSum", ["f32[N,3]", np.zeros(0, np.int64)], {"noop_with_empty_axes": 1}, ["f32[N,3]"]),
    ("ArgMax", ["f32[N,3]"], {"axis": -1, "keepdims": 0}, ["i64[N]"]),
    ("MaxPool", ["f32[N,3,H,8]"], {**POOL, "strides": [2, 2], "pads": [1, 1, 1, 1]},
     ["f32[N,3,floor((H-1)/2)+1,4]", "i64[N,3,floor((H-1)/2)+1,4]"]),
    ("AveragePool", ["f32[N,3,9]"], {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}, ["f32[N,3,5]"]),
    ("GlobalMaxPool", ["f32[N,3,H,W]"], {}, ["f32[N,3,1,1]"]),
    ("LayerNormalization", ["f32[N,3,4]", "f32[3,4]"], {"axis": 1}, ["f32[N,3,4]", "f32[N,1,1]", "f32[N,1,1]"]),
    ("LSTM", ["f32[T,N,3]", "f32[2,20,3]", "f32[2,20,5]"], {"direction": "bidirectional"},
     ["f32[T,2,N,5]", "f32[2,N,5]", "f32[2,N,5]"]),
    ("GRU", ["f32[N,T,3]", "f32[1,15,3]", "f32[1,15,5]"], {"layout": 1}, ["f32[N,T,1,5]", "f32[N,1,5]"]),
], ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_infers(name: str, operands: list[Any], attrs: dict[str, Any], types: list[str]) -> None:
    found = node(name, operands, attrs, len(types))
    assert [v.type for v in found.outputs] == [parse_type(t) for t in types]
