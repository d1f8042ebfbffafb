"""The usage figures of `billing/usage/counters.py` are in the wire contract, the tables and the console's API."""

from __future__ import annotations

import json

from django.db import models

from control_plane.billing.usage.counters import BEFORE_ENGINE, COUNTERS, REPORTED, SHOWN, SUMMED
from control_plane.billing.usage.models import (
    DailyTotals,
    DailyUsage,
    DaySums,
    HourlyUsage,
    HourSums,
    MinuteSums,
    OverallTotals,
    UsageEvent,
)
from control_plane.core.config import REPOSITORY
from lora_engine.wire import engine_pb2 as pb

# How many requests there were, and a base model's key.
NO_FIGURES = ("requests", "base_id")


def numbers(model: type[models.Model]) -> set[str]:
    """Columns that count something."""
    return {
        field.name
        for field in model._meta.get_fields()
        if isinstance(field, models.IntegerField) and not field.primary_key and field.name not in NO_FIGURES
    }


def test_an_engine_says_each() -> None:
    assert set(COUNTERS) <= {field.name for field in pb.UsageRecord.DESCRIPTOR.fields}


def test_the_ledger_has_each_and_no_other() -> None:
    assert numbers(UsageEvent) == {*COUNTERS, *BEFORE_ENGINE}


def test_rollups_have_those_that_are_summed() -> None:
    assert all(numbers(model) == set(SUMMED) for model in (HourlyUsage, DailyUsage, DailyTotals, OverallTotals))
    assert all(numbers(model) == {*SUMMED, "start"} for model in (MinuteSums, HourSums, DaySums))


def test_the_api_has_those_that_are_shown() -> None:
    schemas = json.loads((REPOSITORY / "frontend" / "openapi.json").read_text())["components"]["schemas"]
    assert set(SHOWN) <= schemas["RequestRecord"]["properties"].keys()
    assert {*REPORTED, "requests"} <= schemas["UsageTotals"]["properties"].keys()
