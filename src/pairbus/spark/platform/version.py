"""Which Spark is needed: the data source is written with classes that Spark has since 4.2."""

import re
from typing import Final

import pyspark

from pairbus.errors import SparkUnavailableError

WANTED: Final = (4, 2)


def check_version() -> None:
    """Refuse a PySpark that is too old.

    :raises SparkUnavailableError: it is; the text names its version and the one that is wanted.
    """
    found = tuple(int(each) for each in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < WANTED:
        raise SparkUnavailableError(
            f"this is PySpark {pyspark.__version__}, and pairbus needs 4.2 or later: pip install 'pyspark>=4.2,<5', or "
            "use a platform that provides it"
        )
