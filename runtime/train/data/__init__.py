"""Data for training: data sets, their order, transforms, the loader and how many workers it needs. NumPy alone.

Pillow, pyarrow and scikit-learn read what needs them, if they are installed.
"""
