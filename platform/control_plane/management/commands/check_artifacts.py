"""`manage.py check_artifacts`: whether the artifact store holds what the database says, after a restored back-up."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control_plane.adapters.artifacts.artifact_gc import missing_contents, note_strays


class Command(BaseCommand):
    help = "Look for versions whose files are missing, and have files that belong to nothing removed."

    def handle(self, *args: Any, **options: Any) -> None:
        strays = note_strays()
        self.stdout.write(f"{strays} contents belong to nothing that is known; the next collection removes them.")
        missing = missing_contents()
        for version in missing[:20]:
            self.stdout.write(f"{version.tenant.slug}: {version.adapter.name}@v{version.number} {version.digest}")
        if missing:
            raise CommandError(f"The files of {len(missing)} versions are missing. Restore the store's back-up.")
        self.stdout.write("The files of every version are there.")
