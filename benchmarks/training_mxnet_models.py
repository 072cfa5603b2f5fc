"""The trained models as symbols of MXNet, with the ONNX models' weights in MXNet's own order.

Those of pictures are read from the ONNX nodes, one layer each; the others are written as one would write them in MXNet,
with its own layers for attention, LSTM and embeddings. Owns the symbols; must import nothing of parax or onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mxnet as mx
import numpy as np

Arrays = dict[str, np.ndarray]  # where this runs, Python may be older than `dict[...]` outside annotations
Made = tuple[Any, Arrays]
About = dict[str, Any]
_KEPT = 0.9
"""ONNX's momentum of running statistics."""


def pictures(about: About, weights: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> Made:
    """A model of pictures: (result, weights)."""
    values: dict[str, Any] = {}
    for node in about["nodes"]:
        inputs = [values.setdefault(name, mx.sym.Variable(name)) if name not in weights or weights[name].ndim
                  else float(weights[name]) for name in node["inputs"]]  # fmt: skip
        of_weights = [weights.get(name) for name in node["inputs"]]
        values[node["outputs"][0]] = _LAYERS[node["op"]](node, inputs, of_weights)
    return values[about["result"]], weights


def _conv(node: About, inputs: list[Any], weights: list[Any]) -> Any:
    pads, bias = node["pads"], inputs[2:]
    assert pads[:2] == pads[2:]
    return mx.sym.Convolution(*inputs, no_bias=not bias, kernel=node["kernel_shape"], stride=node["strides"],
                              pad=pads[:2], num_filter=len(weights[1]), num_group=node.get("group", 1))  # fmt: skip


def _conv_transpose(node: About, inputs: list[Any], weights: list[Any]) -> Any:
    return mx.sym.Deconvolution(*inputs, no_bias=len(inputs) < 3, kernel=node["kernel_shape"], stride=node["strides"],
                                pad=node["pads"][:2], num_filter=weights[1].shape[1])  # fmt: skip


def _batch_norm(node: About, inputs: list[Any], weights: list[Any]) -> Any:
    return mx.sym.BatchNorm(*inputs, eps=node.get("epsilon", 1e-5), momentum=node.get("momentum", _KEPT),
                            fix_gamma=False)  # fmt: skip


def _max_pool(node: About, inputs: list[Any], weights: list[Any]) -> Any:
    return mx.sym.Pooling(*inputs, kernel=node["kernel_shape"], stride=node["strides"], pad=node["pads"][:2],
                          pool_type="max")  # fmt: skip


_LAYERS: dict[str, Callable[[About, list[Any], list[Any]], Any]] = {
    "Add": lambda node, inputs, weights: mx.sym.elemwise_add(*inputs),
    "BatchNormalization": _batch_norm,
    "Clip": lambda node, inputs, weights: mx.sym.clip(*inputs),
    "Concat": lambda node, inputs, weights: mx.sym.Concat(*inputs, dim=node["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Flatten": lambda node, inputs, weights: mx.sym.Flatten(*inputs),
    "Gemm": lambda node, inputs, weights: mx.sym.FullyConnected(*inputs, num_hidden=len(weights[1])),
    "GlobalAveragePool": lambda node, inputs, weights: mx.sym.Pooling(*inputs, global_pool=True, pool_type="avg",
                                                                      kernel=(1, 1)),
    "MaxPool": _max_pool,
    "Relu": lambda node, inputs, weights: mx.sym.Activation(*inputs, act_type="relu"),
}  # fmt: skip
"""By ONNX's name: (node, symbols or numbers, their arrays where they are weights) → a symbol."""


def word_lm(about: About, weights: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> Made:
    """See examples.models.recurrent.word_lm; the output layer's weights are the table."""
    table = mx.sym.Variable("encoder.weight")
    words, _ = weights["encoder.weight"].shape
    x = mx.sym.transpose(_embedded(mx.sym.Variable("input_ids"), table, weights["encoder.weight"]), axes=(1, 0, 2))
    for layer in range(sum(key.endswith("weight_hh") for key in weights)):
        x = _lstm(x, f"rnn.{layer}", weights, shapes["input_ids"][0])
    x = mx.sym.transpose(x, axes=(1, 0, 2))
    return _projected(x, "decoder", words, table), weights


def ncf(about: About, weights: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> Made:
    """See examples.models.ncf; its scores, which the loss of scores takes."""
    ids = {kind: mx.sym.Variable(kind) for kind in ("user", "item")}
    of = {f"{part}_{kind}": _embedded(ids[kind], mx.sym.Variable(key := f"{part}_{kind}_embed.weight"), weights[key])
          for part in ("mf", "mlp") for kind in ids}  # fmt: skip
    x = mx.sym.Concat(of["mlp_user"], of["mlp_item"], dim=1)
    for layer in sorted({key.split(".")[1] for key in weights if key.startswith("mlp.")}, key=int):
        x = mx.sym.Activation(_projected(x, f"mlp.{layer}", len(weights[f"mlp.{layer}.bias"])), act_type="relu")
    x = mx.sym.Concat(of["mf_user"] * of["mf_item"], x, dim=1)
    return _projected(x, "final", 1), weights


def _embedded(ids: Any, table: Any, array: np.ndarray) -> Any:
    return mx.sym.Embedding(ids, table, input_dim=array.shape[0], output_dim=array.shape[1])


def _projected(x: Any, layer: str, width: int, weight: Any = None) -> Any:
    """A fully connected layer on the last axis."""
    weight = mx.sym.Variable(f"{layer}.weight") if weight is None else weight
    return mx.sym.FullyConnected(x, weight, mx.sym.Variable(f"{layer}.bias"), num_hidden=width, flatten=False)


def _lstm(x: Any, scope: str, weights: Arrays, rows: int) -> Any:
    """One layer [T,N,F] → [T,N,H] from a state of zeros. Its weights become one vector, in its operator's order."""
    w, r, b = (weights.pop(f"{scope}.{name}") for name in ("weight_ih", "weight_hh", "bias"))
    hidden = r.shape[2]
    weights[f"{scope}.parameters"] = np.concatenate([a.ravel() for d in range(len(w))
                                                     for a in (_gates(w[d]), _gates(r[d]))]
                                                    + [_gates(a) for d in range(len(w)) for a in np.split(b[d], 2)])
    state = mx.sym.zeros((len(w), rows, hidden))
    return mx.sym.RNN(x, mx.sym.Variable(f"{scope}.parameters"), state, state, state_size=hidden, num_layers=1,
                      mode="lstm", bidirectional=len(w) == 2)  # fmt: skip


def _gates(array: np.ndarray) -> np.ndarray:
    """ONNX has i, o, f, c one after the other, MXNet i, f, c, o."""
    i, o, f, c = np.split(array, 4)
    return np.concatenate([i, f, c, o])


MODELS: dict[str, Callable[[About, Arrays, Mapping[str, tuple[int, ...]]], Made]] = {"word-lm": word_lm, "ncf": ncf}
