"""The seven networks: structure, published counts, names. Their values are in test_models_signal."""

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from inferometer.errors import ConfigError, StoreError
from inferometer.models import build, describe, export, load, names, network, shapes_only

# Exact counts. AlexNet and GoogLeNet: sums over the layer tables of the papers as the BVLC trained them;
# the others: the `num_params` that torchvision lists with its weights (BatchNorm scale and shift included).
EXACT_PARAMETERS = {
    "alexnet": 60_965_224,
    "googlenet": 6_998_552,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
}
# BatchNorm channels of the ResNets: one per output channel of each convolution, counted from table 1 of
# the paper: stem, then per stage blocks x (2 x width + 4 x width) and one projection of 4 x width.
BATCHNORM_CHANNELS = {
    name: 64
    + sum(blocks * 6 * width + 4 * width for blocks, width in zip(stages, (64, 128, 256, 512), strict=True))
    for name, stages in (
        ("resnet50", (3, 4, 6, 3)),
        ("resnet101", (3, 4, 23, 3)),
        ("resnet152", (3, 8, 36, 3)),
    )
}
PRINTED = {
    "alexnet": ("60.97", "0.724"),
    "googlenet": ("7.00", "1.58"),
    "vgg16": ("138.36", "15.47"),
    "vgg19": ("143.67", "19.63"),
    "resnet50": ("25.56", "4.09"),
    "resnet101": ("44.55", "7.80"),
    "resnet152": ("60.19", "11.51"),
}


def test_the_seven_are_there() -> None:
    assert names() == list(PRINTED)


@pytest.mark.parametrize("name", list(PRINTED))
def test_counts_are_as_published(name: str) -> None:
    summary = describe(shapes_only(name))
    parameters, macs = PRINTED[name]
    assert summary.published_parameters == EXACT_PARAMETERS[name]
    assert f"{summary.published_parameters / 1e6:.2f}" == parameters
    assert summary.macs is not None
    assert f"{summary.macs / 1e9:.{len(macs.split('.')[1])}f}" == macs
    assert f"{network(name).published_parameters_m:.2f}" == parameters
    assert network(name).published_macs_g == float(macs)


@pytest.mark.parametrize("name", list(PRINTED))
def test_the_file_holds_what_is_published_less_the_folded_scales(name: str) -> None:
    summary = describe(shapes_only(name))
    folded = BATCHNORM_CHANNELS.get(name)
    assert summary.folded_parameters == folded
    assert summary.parameters == EXACT_PARAMETERS[name] - (folded or 0)


def test_batchnorm_channels_of_resnet50() -> None:
    assert BATCHNORM_CHANNELS["resnet50"] == 26_560


@pytest.mark.parametrize("name", list(PRINTED))
def test_input_output_and_versions(name: str) -> None:
    summary = describe(shapes_only(name))
    size = 227 if name == "alexnet" else 224
    assert network(name).input_size == size
    assert [(i.name, i.shape, i.dtype) for i in summary.inputs] == [
        ("input", ("N", 3, size, size), "float32")
    ]
    assert [(o.name, o.shape, o.dtype) for o in summary.outputs] == [("logits", ("N", 1000), "float32")]
    assert (summary.opset, summary.batch, summary.reason) == (17, None, None)
    assert summary.ir_version <= 10  # what onnxruntime 1.18 reads
    assert summary.layers[-1].op == "Gemm"  # logits, no softmax
    assert not summary.is_quantized
    preset = "caffe" if name in ("alexnet", "googlenet") else "torchvision"
    assert network(name).preprocess == summary.metadata["inferometer.preprocess"] == preset


def _layers(name: str) -> dict[str, tuple[str, tuple[int | None, ...] | None]]:
    return {row.name: (row.op, row.output_shape) for row in describe(shapes_only(name)).layers}


def test_alexnet_normalises_before_it_pools_and_has_groups() -> None:
    order = list(_layers("alexnet"))
    assert order[:8] == ["conv1", "relu1", "norm1", "pool1", "conv2", "relu2", "norm2", "pool2"]
    sizes = [_layers("alexnet")[layer][1] for layer in ("conv1", "pool1", "pool2", "pool5")]
    assert sizes == [(1, 96, 55, 55), (1, 96, 27, 27), (1, 256, 13, 13), (1, 256, 6, 6)]
    groups = {
        node.name: next(a.i for a in node.attribute if a.name == "group")
        for node in shapes_only("alexnet").graph.node
        if node.op_type == "Conv"
    }
    assert groups == {"conv1": 1, "conv2": 2, "conv3": 1, "conv4": 2, "conv5": 2}
    lrn = next(node for node in shapes_only("alexnet").graph.node if node.op_type == "LRN")
    values = {a.name: onnx.helper.get_attribute_value(a) for a in lrn.attribute}
    assert values == pytest.approx({"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0})


def test_googlenet_pools_round_up_as_in_caffe() -> None:
    layers = _layers("googlenet")
    assert layers["conv1/7x7_s2"][1] == (1, 64, 112, 112)
    assert layers["pool1/3x3_s2"][1] == (1, 64, 56, 56)
    assert layers["pool2/3x3_s2"][1] == (1, 192, 28, 28)
    # Output channels per module: table 1 of the paper.
    outputs = {key: shape for key, (_, shape) in layers.items() if key.endswith("/output")}
    assert list(outputs.values()) == [
        (1, channels, side, side)
        for channels, side in (
            (256, 28), (480, 28), (512, 14), (512, 14), (512, 14), (528, 14), (832, 14), (832, 7), (1024, 7)
        )
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "blocks"), [("resnet50", (3, 4, 6, 3)), ("resnet152", (3, 8, 36, 3))])
def test_resnet_tensor_names_are_torchvisions(name: str, blocks: tuple[int, ...]) -> None:
    expected = {"conv1", "fc"}
    for stage, count in enumerate(blocks, start=1):
        expected |= {f"layer{stage}.{b}.conv{c}" for b in range(count) for c in (1, 2, 3)}
        expected.add(f"layer{stage}.0.downsample.0")
    found = {tensor.name: tuple(tensor.dims) for tensor in shapes_only(name).graph.initializer}
    assert set(found) == {f"{layer}.{kind}" for layer in expected for kind in ("weight", "bias")}
    assert found["layer1.0.conv1.weight"] == (64, 64, 1, 1)
    assert found["layer4.0.downsample.0.weight"] == (2048, 1024, 1, 1)
    assert found["fc.weight"] == (1000, 2048)


def test_resnet_strides_in_the_3x3() -> None:
    strides = {
        node.name: next(a.ints[0] for a in node.attribute if a.name == "strides")
        for node in shapes_only("resnet50").graph.node
        if node.op_type == "Conv"
    }
    strided = {layer for layer, stride in strides.items() if stride == 2}
    assert strided == {"conv1"} | {
        f"layer{stage}.0.{layer}" for stage in (2, 3, 4) for layer in ("conv2", "downsample.0")
    }


def test_vgg_tensor_names_are_torchvisions() -> None:
    shapes = {tensor.name: tuple(tensor.dims) for tensor in shapes_only("vgg16").graph.initializer}
    weights = [name for name in shapes if name.endswith(".weight")]
    # torchvision's VGG-16 has its convolutions at these positions.
    positions = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]
    assert weights == [f"features.{i}.weight" for i in positions] + [
        f"classifier.{i}.weight" for i in (0, 3, 6)
    ]
    assert shapes["classifier.0.weight"] == (4096, 25088)


def test_a_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = build("googlenet", 3), build("googlenet", 3), build("googlenet", 4)
    assert first.SerializeToString() == again.SerializeToString()
    weights = [numpy_helper.to_array(model.graph.initializer[0]) for model in (first, other)]
    assert abs(np.corrcoef(weights[0].ravel(), weights[1].ravel())[0, 1]) < 0.05
    assert first.metadata_props != other.metadata_props  # the file says which


def test_export_writes_a_loadable_file_and_nothing_else(tmp_path) -> None:
    export("googlenet", tmp_path / "g.onnx", seed=1)
    assert [item.name for item in tmp_path.iterdir()] == ["g.onnx"]
    assert load(tmp_path / "g.onnx") == build("googlenet", 1)
    summary = describe(tmp_path / "g.onnx")
    assert summary.metadata["inferometer.network"] == "googlenet"
    assert re.fullmatch("[0-9a-f]{64}", summary.sha256 or "")


def test_export_makes_the_folder_and_says_why_it_cannot(tmp_path) -> None:
    export("googlenet", tmp_path / "missing" / "g.onnx")
    assert (tmp_path / "missing" / "g.onnx").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not write: "):
        export("googlenet", tmp_path / "file" / "g.onnx")


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown network 'resnet-50'; did you mean 'resnet50'"):
        build("resnet-50")
    with pytest.raises(ConfigError, match="known are alexnet, googlenet"):
        network("transformer")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed -1"):
        build("googlenet", -1)
