"""ONNX Runtime, by any of its execution providers. ``engine`` is the plug-in; the rest serves it.

Opening: ``providers`` (which there are, and their settings), ``plugins`` (those in packages of their own),
``gpus``, ``float16``, ``opening``. Running: ``session``, ``slots``, ``tensors``, ``errors``. Reading back:
``profile``, ``layers``, ``openvino`` (kernels inside a subgraph that OpenVINO compiled).
"""
