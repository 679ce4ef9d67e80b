"""PyTorch's own NNAPI back end, unmodified, through libneuralnetworks.so: every kind of node that it can serialise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nnbridge import clib

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install '.[torch]')")
pytest.importorskip("cffi")

from torch.backends._nnapi.prepare import convert_model_to_nnapi  # noqa: E402

pytestmark = pytest.mark.torch
nn, functional = torch.nn, torch.nn.functional


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """nnbridge's library under NNAPI's name."""
    clib.preload()
    torch.backends.quantized.engine = "x86" if "x86" in torch.backends.quantized.supported_engines else "qnnpack"


class Function(nn.Module):
    """A function as a module, with a parameter, which PyTorch's back end requires of every model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def image(*shape: int, nhwc: bool = False) -> Any:
    """Random images in either order of axes."""
    made = torch.randn(*shape)
    if nhwc:
        made = made.contiguous(memory_format=torch.channels_last)
        made.nnapi_nhwc = True
    return made


def check(module: Any, *inputs: Any, atol: float = 1e-5, steps: float = 0.0) -> None:
    """Eager mode and NNAPI agree."""
    torch.manual_seed(0)
    module = module.eval()
    with torch.no_grad():
        expected = module(*inputs)
        converted = convert_model_to_nnapi(torch.jit.trace(module, inputs), list(inputs))
        found = converted(*inputs)
    pairs = zip(expected, found, strict=True) if isinstance(expected, (tuple, list)) else [(expected, found)]
    for expected, got in pairs:
        if expected.is_quantized:
            assert (expected.int_repr().int() - got.int_repr().int()).abs().max() <= steps
        else:
            torch.testing.assert_close(got, expected, atol=atol, rtol=1e-4)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda x: x + torch.relu(x),
    "sub": lambda x: x - torch.sigmoid(x),
    "mul": lambda x: x * x,
    "div": lambda x: x / torch.exp(torch.ones(2, 4, 6)),
    "relu": functional.relu,
    "relu6": nn.ReLU6(),
    "hardtanh": lambda x: functional.hardtanh(x, -1.0, 1.0),
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: functional.softmax(x, dim=-1),
    "log_softmax": lambda x: functional.log_softmax(x, dim=-1),
    "reshape": lambda x: x.reshape(2, -1),
    "flatten": lambda x: torch.flatten(x, 1),
    "unsqueeze": lambda x: torch.unsqueeze(x, 1),
    "slice": lambda x: x[:, 1:3, 0:4:2],
    "mean": lambda x: torch.mean(x, dim=[-1], keepdim=True),
    "size": lambda x: x.reshape(x.size(0), -1),
    "detach": lambda x: torch.relu(x).detach(),
    "cat": lambda x: torch.cat([x, x * x], dim=1),
    "two outputs": lambda x: (x + x, x * x),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions(name: str) -> None:
    check(Function(ELEMENTWISE[name]), torch.randn(2, 4, 6))


@pytest.mark.parametrize("nhwc", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(4, 8, 3, padding=1, stride=2),
        lambda: nn.Conv2d(4, 8, 1, bias=False),
        lambda: nn.Conv2d(4, 8, (3, 5), padding=(1, 2), dilation=1),
        lambda: nn.Conv2d(4, 4, 3, groups=4),
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2),
        lambda: nn.MaxPool2d(2),
        lambda: nn.AvgPool2d(3, stride=2),
        lambda: nn.AdaptiveAvgPool2d(1),
        lambda: nn.UpsamplingNearest2d(scale_factor=2),
        lambda: nn.UpsamplingNearest2d(size=(9, 7)),
        lambda: nn.PReLU(),
        lambda: Function(lambda x: torch.cat([x, functional.relu(x)], dim=1)),
        lambda: Function(lambda x: torch.mean(x, dim=[2, 3])),
    ],
)
def test_images(make: Callable[[], Any], nhwc: bool) -> None:
    torch.manual_seed(1)
    module = make()
    if not list(module.parameters()):
        module = nn.Sequential(nn.Conv2d(4, 4, 1), module)
    check(module, image(2, 4, 10, 8, nhwc=nhwc), atol=1e-4)


def test_prelu_with_a_slope_for_each_channel() -> None:
    # The back end takes it with channels last alone.
    check(nn.PReLU(4), image(2, 4, 10, 8, nhwc=True))


def test_linear_layers() -> None:
    check(nn.Linear(5, 7), torch.randn(3, 5))


def test_addmm() -> None:
    weight, offset = torch.randn(5, 7), torch.randn(7)

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.offset = nn.Parameter(weight), nn.Parameter(offset)

        def forward(self, x: Any) -> Any:
            return torch.addmm(self.offset, x, self.weight)

    check(Product(), torch.randn(3, 5))


def test_several_inputs_of_mixed_order() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(4, 4, 1), nn.Linear(5, 3)

        def forward(self, x: Any, y: Any) -> Any:
            return self.a(x), self.b(y)

    check(Mixed(), image(1, 4, 3, 3, nhwc=True), torch.randn(2, 5))


def test_quantize_and_dequantize() -> None:
    module = nn.Sequential(torch.ao.nn.quantized.Quantize(0.05, 128, torch.quint8), torch.ao.nn.quantized.DeQuantize())
    check(module, image(1, 2, 3, 4, nhwc=True), atol=1e-6)


def quantised(shape: tuple[int, ...], *, nhwc: bool = False) -> Any:
    """Random 8-bit values."""
    made = torch.quantize_per_tensor(image(*shape), 0.03, 128, torch.quint8)
    if nhwc:
        made = made.contiguous(memory_format=torch.channels_last)
        made.nnapi_nhwc = True
    return made


@pytest.mark.parametrize("nhwc", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_quantised_convolutions(relu: bool, nhwc: bool) -> None:
    torch.manual_seed(2)
    kind = torch.ao.nn.intrinsic.quantized.ConvReLU2d if relu else torch.ao.nn.quantized.Conv2d
    made = kind(4, 8, 3)
    made.set_weight_bias(torch.quantize_per_tensor(torch.randn(8, 4, 3, 3) * 0.2, 0.01, 0, torch.qint8), torch.randn(8) * 0.1)
    made.scale, made.zero_point = 0.05, 120
    check(made, quantised((1, 4, 6, 6), nhwc=nhwc), steps=1)


@pytest.mark.parametrize("nhwc", [False, True])
def test_quantised_transposed_convolutions(nhwc: bool) -> None:
    torch.manual_seed(5)
    torch.backends.quantized.engine = "qnnpack"
    made = torch.ao.nn.quantized.ConvTranspose2d(4, 6, 3)
    made.set_weight_bias(torch.quantize_per_tensor(torch.randn(4, 6, 3, 3) * 0.2, 0.01, 0, torch.qint8), torch.randn(6) * 0.1)
    made.scale, made.zero_point = 0.05, 120
    check(made, quantised((1, 4, 6, 6), nhwc=nhwc), steps=1)


def test_a_change_of_type_to_the_same_type() -> None:
    check(Function(lambda x: torch.relu(x).to(torch.float32)), torch.randn(2, 4))


def test_quantised_linear_layers() -> None:
    torch.manual_seed(3)
    made = torch.ao.nn.quantized.Linear(5, 7)
    made.set_weight_bias(torch.quantize_per_tensor(torch.randn(7, 5) * 0.2, 0.01, 0, torch.qint8), torch.randn(7) * 0.1)
    made.scale, made.zero_point = 0.05, 120
    check(made, quantised((3, 5)), steps=1)


@pytest.mark.parametrize("name", ["add", "add_relu", "mul"])
def test_quantised_arithmetic(name: str) -> None:
    class Arithmetic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.functional = torch.ao.nn.quantized.QFunctional()
            self.functional.scale, self.functional.zero_point = 0.05, 110
            self.unused = nn.Parameter(torch.zeros(1))

        def forward(self, x: Any, y: Any) -> Any:
            return getattr(self.functional, name)(x, y)

    check(Arithmetic(), quantised((2, 6)), quantised((2, 6)), steps=1)


@pytest.mark.parametrize("size", [5, 9])
def test_dimensions_that_are_left_open_until_the_model_is_loaded(size: int) -> None:
    torch.manual_seed(4)
    module = nn.Conv2d(4, 6, 3).eval()
    x = torch.randn(1, 4, size, size)
    with torch.no_grad():
        converted = convert_model_to_nnapi(torch.jit.trace(module, x), [torch.zeros(1, 4, 0, 0)])
        torch.testing.assert_close(converted(x), module(x), atol=1e-5, rtol=1e-4)
