"""`manage.py check_artifacts`: compare the artifact store with the database, after a restored back-up."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control_plane.adapters.artifacts.artifact_gc import missing_contents, note_strays


class Command(BaseCommand):
    help = "Report versions whose files are missing, and let the next collection remove files that belong to nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        strays = note_strays()
        self.stdout.write(f"{strays} contents in the store belong to nothing; the next collection removes them.")
        missing = missing_contents()
        for version in missing[:20]:
            self.stdout.write(f"{version.tenant.slug}: {version.adapter.name}@v{version.number} {version.digest}")
        if missing:
            raise CommandError(f"The files of {len(missing)} versions are missing. Restore the store's back-up.")
        self.stdout.write("The files of every version are there.")
