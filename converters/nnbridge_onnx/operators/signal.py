"""Spectra and windows of signals, which the host computes."""

from __future__ import annotations

from nnbridge_onnx.declaration import operator

operator("BlackmanWindow", 23, "size! -> output", "The Blackman window.")
operator("HammingWindow", 74, "size! -> output", "The Hamming window.")
operator("HannWindow", 75, "size! -> output", "The Hann window.")
operator("DFT", 44, "input dft_length!? axis!? -> output", "Discrete Fourier transform along an axis.")
operator("STFT", 153, "signal frame_step! window? frame_length!? -> output", "Fourier transforms of frames.")
operator(
    "MelWeightMatrix", 105, "num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz -> output",
    "Weights from the bins of a spectrum to those of the mel scale.",
)  # fmt: skip
operator("ImageDecoder", 81, "encoded_stream -> image", "Pixels of a compressed image.")
