import pytest

from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import study


@pytest.fixture(scope="session")
def records():
    return study()[0]


@pytest.fixture(scope="session")
def summary():
    return summarise(*study())
