"""Models of Keras and of TensorFlow's own operators, as tf2onnx writes them: images channels-last, loops as While.

Owns which models these are; each is a function of named tensors whose first axis stays open where a batch may.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .sources import Written

OPSET = 18
APPLICATIONS = {"MobileNetV2": 96, "EfficientNetV2B0": 96, "DenseNet121": 64, "Xception": 96, "NASNetMobile": 224}
"""Network of keras.applications → height and width of its pictures."""
LENGTH, WIDTH, VOCABULARY = 12, 64, 500


def _written(function: Callable[..., Any], feeds: Sequence[Mapping[str, np.ndarray]], is_open: bool = True) -> Written:
    """The function of the feeds' tensors, whose sizes that differ between the feeds and first axis stay open."""
    import tensorflow as tf
    import tf2onnx

    taken = []
    for name, first in feeds[0].items():
        open_axes = {i for i, sizes in enumerate(zip(*(feed[name].shape for feed in feeds), strict=True))
                     if len(set(sizes)) > 1 or (is_open and i == 0)}  # fmt: skip
        shape = [None if axis in open_axes else size for axis, size in enumerate(first.shape)]
        taken.append(tf.TensorSpec(shape, tf.dtypes.as_dtype(first.dtype), name=name))
    path = Path(tempfile.mkdtemp(prefix="parax-tensorflow-")) / "model.onnx"
    tf2onnx.convert.from_function(tf.function(function), input_signature=taken, opset=OPSET, output_path=str(path))
    return Written(path, f"tf2onnx {version('tf2onnx')}, TensorFlow {version('tensorflow-cpu')}", feeds)


def _seeded() -> np.random.Generator:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    return np.random.default_rng(0)


def _pictures(rng: np.random.Generator, size: int) -> list[dict[str, np.ndarray]]:
    return [{"image": rng.random((rows, size, size, 3), np.float32)} for rows in (2, 2, 1)]


def _application(name: str) -> Written:
    rng, size = _seeded(), APPLICATIONS[name]
    import tensorflow as tf

    # tf2onnx makes inputs of the constants of Keras's Normalization
    options = {"include_preprocessing": False} if name.startswith("EfficientNetV2") else {}
    network = getattr(tf.keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10, **options)
    return _written(lambda image: network(image, training=False), _pictures(rng, size))


def _texts(rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    sizes = ((2, LENGTH), (2, LENGTH), (1, LENGTH - 3))
    texts = [rng.integers(1, VOCABULARY, size).astype(np.int32) for size in sizes]
    texts[0][1, -4:] = 0
    return [{"ids": text} for text in texts]


def _recurrent() -> Written:
    """An LSTM in both directions and a GRU over words; 0 is no word."""
    rng = _seeded()
    from tensorflow.keras import Sequential, layers

    words = Sequential([layers.Embedding(VOCABULARY, WIDTH, mask_zero=True),
                        layers.Bidirectional(layers.LSTM(WIDTH, return_sequences=True)), layers.GRU(WIDTH),
                        layers.Dense(5, activation="softmax")])  # fmt: skip
    return _written(lambda ids: words(ids, training=False), _texts(rng))


def _transformer() -> Written:
    """Two encoder blocks of Keras's MultiHeadAttention."""
    rng = _seeded()
    import tensorflow as tf
    from tensorflow.keras import layers

    ids = layers.Input((None,), dtype="int32")
    x = layers.Embedding(VOCABULARY, WIDTH)(ids)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, WIDTH // 4)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(x)))
    network = tf.keras.Model(ids, layers.Dense(5)(x))
    return _written(lambda ids: network(ids, training=False), _texts(rng))


def _segmentation() -> Written:
    """A U-Net: strided and transposed convolutions, one enlargement by interpolation."""
    rng = _seeded()
    import tensorflow as tf
    from tensorflow.keras import layers

    image = layers.Input((64, 64, 3))
    fine = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    middle = layers.Conv2D(32, 3, 2, padding="same", activation="relu")(fine)
    coarse = layers.BatchNormalization()(layers.Conv2D(64, 3, 2, padding="same", activation="relu")(middle))
    x = layers.Conv2DTranspose(32, 3, 2, padding="same", activation="relu")(coarse)
    x = layers.UpSampling2D(2, interpolation="bilinear")(layers.Concatenate()([x, middle]))
    network = tf.keras.Model(image, layers.Conv2D(4, 1, activation="softmax")(layers.Concatenate()([x, fine])))
    return _written(lambda image: network(image, training=False), _pictures(rng, 64))


def _detector(overlap: float = 0.4, least: float = 0.5) -> Written:
    """Boxes and scores of a grid, overlaps of one picture suppressed, and the crops that are left.

    Args:
        overlap: of boxes that are both kept, at most. least: the score of one that is kept. Of random weights scores
            hardly differ, and by the defaults one box is left.
    """
    rng = _seeded()
    import tensorflow as tf
    from tensorflow.keras import layers

    trunk = tf.keras.Sequential([layers.Conv2D(16, 3, 2, padding="same", activation="relu") for _ in range(3)])
    head = layers.Conv2D(6, 3, padding="same")

    def find(image: Any) -> tuple[Any, ...]:
        found = tf.reshape(head(trunk(image)), (-1, 6))
        corners, sizes = tf.sigmoid(found[:, :2]), 0.3 * tf.sigmoid(found[:, 2:4])
        boxes, scores = tf.concat([corners, corners + sizes], 1), tf.sigmoid(found[:, 4] * 50)
        chosen = tf.image.non_max_suppression(boxes, scores, 20, iou_threshold=overlap, score_threshold=least)
        boxes = tf.gather(boxes, chosen)
        crops = tf.image.crop_and_resize(image, boxes, tf.zeros_like(chosen), (8, 8))
        return boxes, tf.gather(scores, chosen), crops

    return _written(find, [{"image": feed["image"][:1]} for feed in _pictures(rng, 96)], is_open=False)


def _loop() -> Written:
    """A decoder that feeds its words back until it says the last one: tf.while_loop and a TensorArray."""
    rng = _seeded()
    import tensorflow as tf
    from tensorflow.keras import layers

    table, cell, says = layers.Embedding(VOCABULARY, WIDTH), layers.GRUCell(WIDTH), layers.Dense(VOCABULARY)
    says.build((None, WIDTH)), table.build(None), cell.build((None, WIDTH))

    def decode(memory: Any, most: Any) -> Any:
        def step(at: Any, word: Any, state: Any, said: Any) -> tuple[Any, ...]:
            out, state = cell(table(word), state)
            word = tf.argmax(says(out), 1, output_type=tf.int32)
            return at + 1, word, state[0] if isinstance(state, list) else state, said.write(at, word)

        said = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=(1,))
        found = tf.while_loop(lambda at, word, *_: (at < most) & (word[0] != 0), step,
                              (0, tf.ones((1,), tf.int32), memory, said))  # fmt: skip
        return found[-1].stack()

    feeds = [{"memory": rng.standard_normal((1, WIDTH)).astype(np.float32), "most": np.array(n, np.int32)}
             for n in (9, 9, 4)]  # fmt: skip
    return _written(decode, feeds, is_open=False)


MODELS: Mapping[str, Callable[[], Written]] = {
    **{f"tf-{name.lower()}": partial(_application, name) for name in APPLICATIONS},
    "tf-recurrent": _recurrent, "tf-transformer": _transformer, "tf-segmentation": _segmentation,
    "tf-detector": _detector, "tf-crops": partial(_detector, 0.95, 0.1), "tf-loop": _loop,
}  # fmt: skip
