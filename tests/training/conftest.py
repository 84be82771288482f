"""A graph that a few epochs can learn."""

import pytest

from tests.worlds import learnable_graph
from unkgcp.graph import Graph


@pytest.fixture
def facts() -> Graph:
    return learnable_graph()
