"""An extension of Model Explorer: ``model-explorer --extensions=nnbridge.explorer`` opens ``.nnapi`` and ONNX files.

Model Explorer imports :mod:`nnbridge.explorer.main`; nothing else of nnbridge does.
"""
