import pytest
from engine_bench import Bench


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.engine.close()
