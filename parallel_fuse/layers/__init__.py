"""Keras layers for jobs that no stock layer does as fast, or at all."""

from parallel_fuse.layers.grouped_conv import GroupedConv1D, GroupedConv2D, GroupedConv3D
from parallel_fuse.layers.recurrent import StackedRNN
from parallel_fuse.layers.reshaping import FoldLanes, UnfoldLanes
from parallel_fuse.layers.stacked_attention import StackedMultiHeadAttention
from parallel_fuse.layers.stacked_embedding import StackedEmbedding
from parallel_fuse.layers.stacked_normalization import (
    StackedLayerNormalization,
    StackedRMSNormalization,
)
from parallel_fuse.layers.vectorized import Vectorized

__all__ = [
    "FoldLanes",
    "GroupedConv1D",
    "GroupedConv2D",
    "GroupedConv3D",
    "StackedEmbedding",
    "StackedLayerNormalization",
    "StackedMultiHeadAttention",
    "StackedRMSNormalization",
    "StackedRNN",
    "UnfoldLanes",
    "Vectorized",
]
