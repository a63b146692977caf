"""A stream that is given the checkpoint of another entity says so."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pairbus.errors import OptionError
from pairbus.spark.connector.columns import READ
from pairbus.spark.connector.options import read_options
from pairbus.spark.connector.reader import StreamReader

NOWHERE = "Endpoint=sb://nowhere.example/;SharedAccessKeyName=a;SharedAccessKey=b"


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_of_another_entity_is_refused() -> None:
    reader = StreamReader(read_options({"connectionString": NOWHERE, "entity": "orders"}), READ)
    with pytest.raises(
        OptionError, match=r"checkpointLocation='bills' is not valid: .* other entities than orders; begin"
    ):
        reader.latestOffset({"bills": 27}, ReadAllAvailable())
