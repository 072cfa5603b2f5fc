"""CIFAR-10 and CIFAR-100 in their binary form (A. Krizhevsky, 2009): records of labels and 3×32×32 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import InvalidData
from .dataset import ArrayDataset
from .files import check_labels, content, existing

PIXELS = 3 * 32 * 32


def cifar_dataset(paths: Sequence[Path | str], classes: int = 10) -> ArrayDataset:
    """input u8[3,32,32] and label i64, of files in order; with 100 classes each record has a coarse label before.

    Raises:
        InvalidData: a file that is not of whole records, a label out of range, no sample.
    """
    if classes not in (10, 100):
        raise InvalidData("no such CIFAR", where="classes", expected="10 or 100", found=classes)
    n_labels = 2 if classes == 100 else 1
    record = n_labels + PIXELS
    images, labels = [], []
    for path in [existing(path, "CIFAR file") for path in paths]:
        data = content(path)
        if len(data) % record or not data:
            at = len(data) - len(data) % record
            raise InvalidData("cut off inside a record", where=f"{path}, at byte {at}", found=f"{len(data)} bytes",
                              expected=f"a multiple of {record}", hint="fetch it again")  # fmt: skip
        records = np.frombuffer(data, np.uint8).reshape(-1, record)
        own = records[:, n_labels - 1].astype(np.int64)
        check_labels(own, classes, str(path))
        images.append(records[:, n_labels:].reshape(-1, 3, 32, 32))
        labels.append(own)
    if not images:
        raise InvalidData("an empty data set", where="CIFAR", expected="a file or more", found="none")
    return ArrayDataset({"input": np.concatenate(images), "label": np.concatenate(labels)})
