"""TFLite's operators, one module per family. Each operator is declared once, with everything that is known about it."""
