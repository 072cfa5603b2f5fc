"""The bundled model and its sample pictures, made by examples/train_digits.py. Data only."""
