"""PyTorch, from an ONNX file. ``engine`` is the plug-in; the rest serves it.

The file: ``graph`` makes steps of its nodes by the tables in ``operators``, ``windows`` and ``shaping``
(``node`` says what an entry is); ``network`` runs them. Sessions: ``cpu``, ``cuda`` with ``capture``,
``fusion`` and ``parts``; ``settings`` (process-wide). Reading back: ``layers``.
"""
