from pathlib import Path

import numpy as np

from inferometer.engines.null import NullEngine
from tests.contract.engines import EngineContract


class TestNull(EngineContract):
    name = "null"

    def test_outputs_are_zeros_and_nothing_ran(self, path: Path) -> None:
        with NullEngine().load(path, "cpu", "int8", 2, {}) as session:
            np.testing.assert_array_equal(
                session.infer(self.feeds(2))["logits"], np.zeros((2, 5), np.float32)
            )
            assert session.executed() == ()
            assert session.profile() == ()
