"""The generator: every operator of the catalogue is reached, seeds decide the graphs, and these are valid."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from fuzz.families import BUILDERS
from fuzz.generate import generate
from parax.compiler.ir.ops import CATALOGUE
from parax.compiler.shrinking.graphs import operators

GRAPHS = 3 * len(BUILDERS)
# Operators of the catalogue that no random graph has, each with the reason.
LEFT_OUT = {
    **{("", name): "of strings; tests/integration/test_strings.py, catalogue/cases_strings.py" for name in (
        "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer")},
    **{("", name): "of values that are no tensors; tests/integration/test_host_sequences.py" for name in (
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SplitToSequence")},
    **{("ai.onnx.ml", name): "of values that are no tensors; tests/integration/test_maps.py" for name in (
        "CastMap", "DictVectorizer", "ZipMap")},
    ("ai.onnx.ml", "CategoryMapper"): "its attributes are a table; tests/integration/test_strings.py",
    ("", "DFT"): "of two numbers a sample, and known lengths; catalogue/cases_fourier.py",
    ("", "STFT"): "of two numbers a sample, and known windows; catalogue/cases_fourier.py",
    ("ai.onnx.ml", "TreeEnsemble"): "its attributes are a program; tests/backend/kernels/test_tree_ensemble.py",
    ("ai.onnx.ml", "TreeEnsembleClassifier"): "its attributes are a program; tests/backend/kernels/test_trees.py",
    ("ai.onnx.ml", "TreeEnsembleRegressor"): "its attributes are a program; tests/backend/kernels/test_trees.py",
    ("ai.onnx.ml", "Scaler"): "its attributes are a model; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "Normalizer"): "its attributes are a model; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "Imputer"): "its attributes are a model; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "Binarizer"): "its attributes are a model; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "ArrayFeatureExtractor"): "its attributes are a model; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "FeatureVectorizer"): "its attributes are a model; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "LabelEncoder"): "its attributes are a table; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "OneHotEncoder"): "its attributes are a table; catalogue/cases_ml_features.py",
    ("ai.onnx.ml", "SVMClassifier"): "its attributes are a model; catalogue/cases_ml_models.py",
    ("ai.onnx.ml", "SVMRegressor"): "its attributes are a model; catalogue/cases_ml_models.py",
    ("ai.onnx.ml", "LinearRegressor"): "its attributes are a model; catalogue/cases_ml_models.py",
    ("ai.onnx.ml", "LinearClassifier"): "its attributes are a model; catalogue/cases_ml_models.py",
    ("ai.onnx.preview.training", "Gradient"): "its attributes name tensors; tests/passes/dataflow/test_autodiff.py",
    ("ai.onnx.preview.training", "Adagrad"): "its state must not be negative; catalogue/cases_training.py",
    ("ai.onnx.preview.training", "Adam"): "its state must not be negative; catalogue/cases_training.py",
    ("ai.onnx.preview.training", "Momentum"): "its inputs are of one shape each; catalogue/cases_training.py",
    ("", "SimplifiedLayerNormalization"): "ONNX Runtime's; catalogue/cases_contrib.py",
    ("", "NegativeLogLikelihoodLoss"): "its labels are numbers of classes; catalogue/cases_losses.py",
    ("", "SoftmaxCrossEntropyLoss"): "its labels are numbers of classes; catalogue/cases_losses.py",
    ("", "RoiAlign"): "its regions name images; catalogue/cases_roi.py",
    ("", "MaxRoiPool"): "its regions name images; catalogue/cases_roi.py",
    ("", "Det"): "nearly singular matrices have no digits; catalogue/cases_factorization.py",
    ("", "DeformConv"): "its positions must fit its windows; catalogue/cases_deformable.py",
    ("", "AffineGrid"): "its sizes must fit its maps; catalogue/cases_sampling.py",
    ("", "MelWeightMatrix"): "its operands are five settings; catalogue/cases_fourier.py",
    ("", "TensorScatter"): "its places must lie in the cache; catalogue/cases_cache_update.py",
    ("", "BitCast"): "its numbers are NaN and denormals; catalogue/cases_casting.py",
    **{("", name): "others draw other numbers; tests/integration/test_random.py" for name in (
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")},
    ("", "Dropout"): "its mask is its own where it drops; catalogue/cases_normalization.py, tests/train/test_modes.py",
    **dict.fromkeys((key for key in CATALOGUE if key[0] == "com.microsoft"), "ONNX has no definitions of them"),
}


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """How often each operator of ONNX occurs in some graphs of one seed."""
    return Counter(op for i in range(GRAPHS) for op in operators(generate("coverage", i).model.graph))


@pytest.mark.parametrize("key", sorted(k for k in CATALOGUE if k[0] != "parax"), ids="::".join)
def test_every_operator_is_generated(key: tuple[str, str], seen: Counter[str]) -> None:
    """parax's own operators have no ONNX form: passes make them, on graphs that have those of ONNX."""
    assert (key in LEFT_OUT) != bool(seen[key[1]] and key[0] != "com.microsoft")


def test_a_seed_decides_the_graph() -> None:
    for number in range(5):
        first, second = generate("s", number), generate("s", number)
        assert first.model == second.model
        assert all(a[k].tobytes() == b[k].tobytes() for a, b in zip(first.feeds, second.feeds) for k in a)
    assert generate("s", 0).model != generate("t", 0).model


@pytest.mark.parametrize("number", range(40))
def test_graphs_are_valid(number: int) -> None:
    onnx.checker.check_model(generate("valid", number).model)
