"""Two tenants and one of everything, made once for a module (`world`), in place of those that are made for each test.

A module of many tests imports all three fixtures: furnishing takes longer than asking. What a test does to them is
undone; so no test of such a module commits.
"""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest

from lorikeet_testing.platform_fixtures import Furniture, Org, Queue, World

__all__ = ["acme", "furnished", "globex"]


@pytest.fixture
def acme(world: World, db: None) -> Org:
    """A copy, as what a test changes in it is not undone."""
    return copy.deepcopy(world.acme)


@pytest.fixture
def globex(world: World, db: None) -> Org:
    return copy.deepcopy(world.globex)


@pytest.fixture
def furnished(world: World, lorikeet: Any, queue: Queue) -> Furniture:
    """Return the world's objects, with a copy of the artifacts that the test may delete."""
    shutil.copytree(world.artifacts, lorikeet.artifact_dir)
    return world.furnished
