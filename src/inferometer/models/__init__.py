"""The seven networks, and what can be told of any ONNX file or done to it without running it.

=====================  ==========================================================================
`networks`             the seven networks: `names`, `network`, `build`, `export`
`files`                `load`, `save`, `file_sha256`: every unusable file is one clear error
`inspection`           `describe`: parameters, MACs and activation bytes by layer (types: `summary`)
`fold`                 `fold_batchnorm`: BatchNorm into the layer before it
`rebatch`              `set_batch`: another batch, or a symbolic one
=====================  ==========================================================================
"""

from inferometer.models.files import file_sha256, load, save
from inferometer.models.fold import fold_batchnorm
from inferometer.models.inspection import describe
from inferometer.models.networks import Network, build, export, names, network, shapes_only
from inferometer.models.rebatch import set_batch
from inferometer.models.summary import LayerRow, ModelSummary, TensorInfo

__all__ = [
    "LayerRow",
    "ModelSummary",
    "Network",
    "TensorInfo",
    "build",
    "describe",
    "export",
    "file_sha256",
    "fold_batchnorm",
    "load",
    "names",
    "network",
    "save",
    "set_batch",
    "shapes_only",
]
