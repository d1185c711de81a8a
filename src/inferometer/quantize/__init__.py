"""INT8: activation ranges from sample images, and the one QDQ inserter.

The order of use: ``graph.prepare`` a float model, ``graph.observed_tensors`` and ``graph.expose`` them,
``calibrate.calibrate`` a session of the exposed model into a ``table.CalibrationTable``, and
``insert.insert_qdq`` it in the form (``QdqScheme``) that an engine wants. Nothing here knows an engine.
"""
