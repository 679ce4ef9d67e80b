"""Sequences, optionals and strings: the host computes on them, operands hold them as messages."""

from __future__ import annotations

from nnbridge_onnx.declaration import operator

operator("SequenceAt", 159, "input_sequence position -> tensor", "One tensor of a sequence.")
operator("SequenceConstruct", 160, "inputs+ -> output_sequence", "Tensors as a sequence.")
operator("SequenceEmpty", 161, "-> output", "A sequence without tensors.")
operator("SequenceErase", 162, "input_sequence position? -> output_sequence", "A sequence without one of its tensors.")
operator("SequenceInsert", 163, "input_sequence tensor position? -> output_sequence", "A sequence with a further tensor.")
operator("SequenceLength", 164, "input_sequence -> length", "How many tensors a sequence has.")
operator(
    "SequenceMap", 165, "input_sequence additional_inputs* -> out_sequence+", "A body that is run for each tensor of a sequence."
)
operator("ConcatFromSequence", 34, "input_sequence -> concat_result", "The tensors of a sequence side by side.")
operator("SplitToSequence", 180, "input split? -> output_sequence", "Parts of a tensor as a sequence.")
operator("Optional", 117, "input? -> output", "A value that may be absent.")
operator("OptionalGetElement", 118, "input -> output", "The value of an optional.")
operator("OptionalHasElement", 119, "input? -> output", "True if an optional has a value.")
operator("StringConcat", 183, "X Y -> Z", "Concatenates strings.")
operator("StringNormalizer", 184, "X -> Y", "Strings in one case, without stop words.")
operator("StringSplit", 185, "X -> Y Z", "Strings, split at a delimiter.")
operator("RegexFullMatch", 145, "X -> Y", "True where a whole string matches a regular expression.")
operator("TfIdfVectorizer", 193, "X -> Y", "How often n-grams occur, weighted.")
