from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.gateway.batches.actions import counts_of
from control_plane.gateway.batches.models import ENDPOINTS, Batch, BatchState, Purpose

ADDRESSES = list(ENDPOINTS)


class StoredFileSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="__str__", help_text="Id of the file in /v1/files.")
    name = serializers.CharField()
    purpose = serializers.ChoiceField(choices=Purpose.choices)
    bytes = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="Time at which the file is deleted.")


class RequestCountsSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField(help_text="Number of requests in the batch; 0 until every line has been checked.")
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()


class BatchSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="__str__", help_text="Id of the batch in /v1/batches.")
    endpoint = serializers.ChoiceField(choices=ADDRESSES, source="url")
    state = serializers.ChoiceField(choices=BatchState.choices)
    key = serializers.CharField(source="api_key.name", help_text="Name of the API key whose requests these are.")
    counts = serializers.SerializerMethodField()
    bad_lines = serializers.SerializerMethodField()
    input_file = StoredFileSerializer(allow_null=True, help_text="File of the requests; null: it was deleted.")
    output_file = StoredFileSerializer(
        allow_null=True, help_text="File of the answers; null: none was written, or it was deleted."
    )
    error_file = StoredFileSerializer(
        allow_null=True,
        help_text="File of the requests that failed, with their errors; null: none was written, or it was deleted.",
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(
        help_text="Time at which requests of the batch that have not run fail with the code batch_expired."
    )

    @extend_schema_field(RequestCountsSerializer)
    def get_counts(self, batch: Batch) -> dict[str, int]:
        return counts_of(batch)

    def get_bad_lines(self, batch: Batch) -> int:
        """Return the number of lines of the file that are not valid requests."""
        return len(batch.errors)


class LineErrorSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="Line number in the file, from 1; 0 = the file as a whole.")
    code = serializers.CharField()
    message = serializers.CharField()
    param = serializers.CharField(allow_null=True, help_text="Name of the field at fault; null: none is.")


class NewBatchSerializer(serializers.Serializer[Any]):
    """The multipart form of a new batch."""

    endpoint = serializers.ChoiceField(choices=ADDRESSES)
    key = serializers.UUIDField(
        required=False,
        default=None,
        help_text="Id of the API key whose requests these are; an API key may name only itself.",
    )
    file = serializers.FileField(max_length=255, help_text="A JSON Lines file, as for POST /v1/files.")
