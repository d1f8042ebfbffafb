"""An app's label is its package's name, and a Celery task's name begins with the label of the app that has it."""

from __future__ import annotations

from django.apps import apps

from control_plane.celery import app

OURS = [config for config in apps.get_app_configs() if config.name.startswith("control_plane")]


def test_labels_are_the_names_of_packages() -> None:
    assert {config.name: config.label for config in OURS} == {
        config.name: config.name.rpartition(".")[2] for config in OURS
    }


def test_tables_are_named_after_their_app() -> None:
    for config in OURS:
        for model in config.get_models():
            assert model._meta.db_table.startswith(f"{config.label}_")


def test_tasks_begin_with_the_label_of_their_app() -> None:
    app.loader.import_default_modules()
    tasks = {name: task.run.__module__ for name, task in app.tasks.items() if not name.startswith("celery.")}
    assert len(tasks) > 30
    homes = {f"{config.name}.tasks": config.label for config in OURS}
    assert {name: homes[module] for name, module in tasks.items()} == {name: name.split(".")[0] for name in tasks}
