"""TensorRT and TensorRT-RTX. ``trt`` and ``rtx`` are the plug-ins and hand their library to the rest.

Building: ``engine``, ``options``, ``model`` and ``types`` (the file in the form that is built), ``build``,
``cache``, ``importing``. Running: ``session``, ``slot``, ``cuda``, ``log`` (its errors). Reading back:
``layers``.
"""
