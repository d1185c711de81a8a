"""OpenVINO. ``engine`` is the plug-in; ``vendor`` imports the library, and nothing else does.

Opening: ``devices``, ``options``, ``reading`` (what its reader of ONNX takes wrongly), ``network``.
Reading back: ``layers``, ``roles``.
"""
