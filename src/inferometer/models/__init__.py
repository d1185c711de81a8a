"""The seven networks, and what can be told of any ONNX file or done to it without running it.

=====================  ==========================================================================
`networks`             the seven networks: `names`, `network`, `build`, `export`
`files`                `load`, `save`, `file_sha256`: every unusable file is one clear error
`inspection`           `describe`: parameters, MACs and activation bytes by layer (types: `summary`)
`fold`                 `fold_batchnorm`: BatchNorm into the layer before it
`rebatch`              `set_batch`: another batch, or a symbolic one (`targets`: constants that hold it;
                       `rows`: operators that would join images)
`fix`                  `fix_shapes`: sizes that a file leaves open
`opset`, `plain`       raising the opset; functions inlined, sparse weights and half floats made plain
`external`             weights in other files, and over 2 GiB
`roles`                which input takes images, which output holds class scores
`form`                 which numbers a model is written in, and how it is quantized
`weights`              files of trained weights (`checkpoint`: PyTorch's; `stored`: their tensors)
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
