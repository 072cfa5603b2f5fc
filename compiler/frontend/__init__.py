"""ONNX to parax IR and back: importer, operator-set upgrades, exporter. Must not know passes or the backend."""
