"""What two inventories are told apart by."""

from __future__ import annotations

from inferometer.environment.differences import differences


def test_differing_facts_are_named_and_identifiers_are_not() -> None:
    first = {
        "machine_key": "a",
        "cpu": {"model": "x", "features": ["avx", "fma"], "governors": None},
        "gpus": [{"name": "A", "uuid": "1", "driver": "580.1"}],
        "missing": {"x": "y"},
        "memory": {"total_bytes": 10, "available_bytes": 3},
    }
    second = {
        "machine_key": "b",
        "cpu": {"model": "x", "features": ["avx"], "governors": None},
        "gpus": [
            {"name": "A", "uuid": "2", "driver": "570.2"},
            {"name": "B", "uuid": "3", "driver": "570.2"},
        ],
        "missing": {},
        "memory": {"total_bytes": 10, "available_bytes": 9},
    }
    assert differences(first, second) == [
        ("cpu.features", "avx, fma", "avx"),
        ("gpus[0].driver", "580.1", "570.2"),
        ("gpus[1].name", "nothing", "B"),
        ("gpus[1].driver", "nothing", "570.2"),
    ]
    assert differences(first, first) == []
