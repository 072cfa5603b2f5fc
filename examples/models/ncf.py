"""NeuMF (He et al. 2017, "Neural collaborative filtering") with MLPerf's layer widths and MovieLens-1M's tables."""

from __future__ import annotations

from .builder import ModelBuilder


def ncf(
    b: ModelBuilder, user: str, item: str, *, users: int, items: int, factors: int, width: int, **_: object
) -> None:  # fmt: skip
    """user, item int64[N] → probability f32[N,1]: an elementwise product of embeddings beside an MLP on others."""
    gmf = [_embedding(b, "mf_user_embed", user, users, factors), _embedding(b, "mf_item_embed", item, items, factors)]
    mlp = [
        _embedding(b, "mlp_user_embed", user, users, width // 2),
        _embedding(b, "mlp_item_embed", item, items, width // 2),
    ]
    x, features = b.op("Concat", *mlp, axis=1), width
    for i, n in enumerate((width, width // 2, width // 4)):
        x = b.op("Relu", b.gemm(x, f"mlp.{i}", features, n, gain=2.0))
        features = n
    x = b.op("Concat", b.op("Mul", *gmf), x, axis=1)
    x = b.gemm(x, "final", factors + features, 1, gain=2.0)
    b.output(b.op("Sigmoid", x), "score", [b.batch, 1])


def _embedding(b: ModelBuilder, name: str, ids: str, rows: int, width: int) -> str:
    return b.op("Gather", b.weight(f"{name}.weight", b.normal(rows, width)), ids, layer=name, axis=0)
