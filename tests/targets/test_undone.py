"""A fused layer that a converter took apart again is named with its region."""

import pytest
from keras import layers

import parallel_fuse
from parallel_fuse.conversion.undone import undone
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.report import RegionReport
from parallel_fuse.targets import Operation
from tests.builders import channel_towers, randomise

REGIONS = (
    RegionReport("first", ("wide",), ("conv", "conv_1", "conv_2"), 3, 3, 1),
    RegionReport("second", ("batched",), ("a/b", "a/b_1", "a/b_2", "a/b_3"), 4, 4, 1),
)
LAYERS = ("conv_x3", "a_b_x4", "a_b_x4_1", "price", "other_x2")


def test_b16_products_lane_by_lane_are_an_undone_fusion():
    split = [Operation("SPLIT", "m_1/a_b_x4_1/einsum/Einsum")]
    apart = [Operation("FULLY_CONNECTED", f"x;m_1/a_b_x4_1/einsum/Einsum{i}") for i in range(4)]
    whole = [Operation("CONV_2D", "m_1/conv_x3_1/Conv2D"), Operation("MUL", "m/price_1/Mul")]
    found = undone(REGIONS, LAYERS, [*split, *apart, *whole])
    assert found == ("the target undid region 2: 'a_b_x4_1' became 4 FULLY_CONNECTED",)


@pytest.mark.parametrize("kind", ["RESHAPE", "Add", "Transpose", "Const"])
def test_other_operations_are_no_work_of_a_layer(kind):
    assert undone(REGIONS, LAYERS, [Operation(kind, "m/a_b_x4/x")] * 9) == ()


@pytest.mark.parametrize(
    "kind",
    ["Conv2D", "CONV_2D", "MatMul", "BATCH_MATMUL", "BatchMatMulV2", "FlexConv3D", "Einsum", "Gemm",
     "DepthwiseConv2dNative", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "ConvTranspose", "Conv"],
)  # fmt: skip
def test_work_in_the_spelling_of_each_format(kind):
    assert len(undone(REGIONS, LAYERS, [Operation(kind, "m/conv_x3/x")] * 3)) == 1
    assert undone(REGIONS, LAYERS, [Operation(kind, "m/conv_x3/x")] * 2) == ()


def test_a_fusion_that_tensorflow_takes_apart_is_reported(tmp_path):
    """There is no kernel for grouped 3D convolution on a CPU: the lanes run one by one."""

    def branch(index, piece):
        return layers.Flatten()(layers.Conv3D(3, 2)(piece))

    randomise(channel_towers(branch, (3, 5, 4, 8), 2)).save(tmp_path / "conv.keras")
    report = parallel_fuse.convert(
        tmp_path / "conv.keras", tmp_path / "conv.savedmodel", policy=EVERYTHING
    )
    assert report.file.undone == ("the target undid region 1: 'conv3d_x4' became 4 Conv3D",)
    assert "the target undid region 1" in report.to_text()
    assert report.file.proof.ok
