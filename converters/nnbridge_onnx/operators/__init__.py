"""ONNX's operators, one definition each, in modules by family; :data:`nnbridge_onnx.declaration.REGISTRY` imports them."""
