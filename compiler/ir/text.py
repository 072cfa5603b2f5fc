"""The text form of graphs: what dumps, tests and error notes show. It parses back to the same graph.

```
graph @block(%x: f32[N,64,56,56]) {
  assume M == N  # Add "sum": shapes [M] and [N] do not broadcast
  %w = const f32[64,64,3,3] "w"
  %axes = const i64[2] [2, 3]
  %1 = Conv(%x, %w, _) {pads=[1,1,1,1]} : f32[N,64,56,56]  # layer1.0.conv1
  %a, %b = Split(%1) {axis=1} : f32[N,32,56,56], f32[N,32,56,56]
  %2 = fused<add>(%a, %b) : f32[N,32,56,56]
    body(%x: f32[N,32,56,56], %y: f32[N,32,56,56]) {
      %1 = Add(%x, %y) : f32[N,32,56,56]
      return %1
    }
  return %2 as "output"
}
```
- One statement a line; indentation is free; a line that starts with `#` is a remark.
- `# text` after a node is its ONNX name. `_` is an omitted input. Names that are not letters, digits or `_./-` are
  quoted: `%"a b"`. `as` gives an output a name other than its value's.
- A constant shows up to 16 elements; a larger one shows a key into the data that the parser is given. Without data
  the parser makes up seeded random contents.
- Bodies follow their node, each under its name. Operators of other domains print as `ai.onnx.ml::Scaler`.
"""

from __future__ import annotations

from .parser import parse_graph
from .printer import graph_data, print_graph

__all__ = ["graph_data", "parse_graph", "print_graph"]
