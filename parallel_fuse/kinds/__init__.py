"""The kinds the package knows. To add one: `kinds=(MINE, *KINDS)`."""

from parallel_fuse.kinds.activation import ACTIVATION, ELEMENTWISE, PRELU, SOFTMAX
from parallel_fuse.kinds.attention import ATTENTION
from parallel_fuse.kinds.base import Kind, Lowering
from parallel_fuse.kinds.bidirectional import BIDIRECTIONAL
from parallel_fuse.kinds.channelwise import CHANNELWISE
from parallel_fuse.kinds.conv import CONV
from parallel_fuse.kinds.dense import DENSE
from parallel_fuse.kinds.depthwise import DEPTHWISE_CONV
from parallel_fuse.kinds.einsum import EINSUM_DENSE
from parallel_fuse.kinds.embedding import EMBEDDING
from parallel_fuse.kinds.group_normalization import GROUP_NORMALIZATION
from parallel_fuse.kinds.layer_normalization import LAYER_NORMALIZATION
from parallel_fuse.kinds.merging import CONCATENATE, MERGE
from parallel_fuse.kinds.noise import DROPOUT, GAUSSIAN, SPATIAL
from parallel_fuse.kinds.normalization import BATCH_NORMALIZATION
from parallel_fuse.kinds.permuting import PERMUTE
from parallel_fuse.kinds.pointwise import POINTWISE
from parallel_fuse.kinds.recurrent import RECURRENT
from parallel_fuse.kinds.rescaling import RESCALING
from parallel_fuse.kinds.reshaping import (
    EXPAND_DIMS,
    IDENTITY,
    REPEAT_VECTOR,
    RESHAPE,
    SQUEEZE,
)
from parallel_fuse.kinds.rms_normalization import RMS_NORMALIZATION
from parallel_fuse.kinds.selecting import SELECT
from parallel_fuse.kinds.separable import SEPARABLE_CONV
from parallel_fuse.kinds.unit_normalization import UNIT_NORMALIZATION
from parallel_fuse.kinds.vectorized import VECTORIZED

KINDS: tuple[Kind, ...] = (
    DENSE,
    EINSUM_DENSE,
    CONV,
    DEPTHWISE_CONV,
    SEPARABLE_CONV,
    BATCH_NORMALIZATION,
    LAYER_NORMALIZATION,
    GROUP_NORMALIZATION,
    RMS_NORMALIZATION,
    UNIT_NORMALIZATION,
    EMBEDDING,
    RECURRENT,
    BIDIRECTIONAL,
    ATTENTION,
    CHANNELWISE,
    ACTIVATION,
    ELEMENTWISE,
    SOFTMAX,
    PRELU,
    POINTWISE,
    MERGE,
    CONCATENATE,
    DROPOUT,
    GAUSSIAN,
    SPATIAL,
    RESHAPE,
    PERMUTE,
    REPEAT_VECTOR,
    RESCALING,
    IDENTITY,
    EXPAND_DIMS,
    SQUEEZE,
    SELECT,
    VECTORIZED,
)

__all__ = ["KINDS", "Kind", "Lowering"]
