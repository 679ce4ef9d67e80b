"""From an ONNX file to frozen data."""
