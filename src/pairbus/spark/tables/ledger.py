"""Ledger lines to records: bronze (typed, the malformed apart) and silver (each record once) (K1, K3).

All of it is DataFrame to DataFrame, and serves a batch and each batch of a stream alike.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)

from pairbus.core.ledger import VERSION, Kind, MeteredBy, Outcome, Stage
from pairbus.core.naming import TRANSFER
from pairbus.spark.platform.files import LedgerPath
from pairbus.spark.platform.frames import frame_of
from pairbus.spark.tables.schemas import BROKEN, BRONZE, LINES, RECORD, SILVER

_REQUIRED: Final = ("id", "at", "client", "namespace", "entity", "kind", "stage", "outcome")
_COUNTS: Final = {"messages": 0, "operations": 1, "bytes": 0, "duration_us": 0}
_VALUES: Final[Mapping[str, type[Enum]]] = {
    "metered_by": MeteredBy,
    "kind": Kind,
    "stage": Stage,
    "outcome": Outcome,
}
_FEW: Final = 1_000_000
"""So many hashes are sent to every worker."""
_NEWER: Final = f"a record of a newer version than {VERSION}, the last that this pairbus reads"
NO_OPERATION: Final = (Kind.TURN.value, Kind.DROPPED.value)


def lines_of(spark: SparkSession, files: Sequence[LedgerPath]) -> DataFrame:
    """Read ledger files as lines; what a file's lines have as their source, :func:`source_of` tells."""
    names = [{"file": name, "source": source_of(file)} for file in files for name in file.names]
    sources = frame_of(spark, names, "file STRING, source STRING")
    text = spark.read.text([file.path for file in files]).select("value", F.col("_metadata.file_path").alias("file"))
    return text.join(F.broadcast(sources), "file", "left").select(*LINES.names)


def source_of(file: LedgerPath) -> str:
    """Return how the lines of a file are named that was read as a whole."""
    return hashlib.sha256(file.path.encode()).hexdigest()[:16]


def bronze(lines: DataFrame) -> DataFrame:
    """Parse lines.

    A line that is no record has a ``reason``, the ``line`` itself and no date, so that it is kept apart; all others
    have neither.
    """
    parsed = lines.select(
        "value", "file", "source", F.from_json("value", RECORD, {"columnNameOfCorruptRecord": BROKEN}).alias("record")
    ).select("value", "file", "source", "record.*")
    typed = parsed.select(
        "*",
        _time("at").alias("ended_at"),
        _time("oldest_at").alias("enqueued_at"),
    ).withColumn("reason", _reason())
    good = F.col("reason").isNull()
    columns = {
        "at": F.col("ended_at"),
        "oldest_at": F.col("enqueued_at"),
        "metered_by": F.coalesce("metered_by", F.lit(MeteredBy.CLIENT.value)),
        **{name: F.coalesce(name, F.lit(default)) for name, default in _COUNTS.items()},
        "operations": F.when(F.col("kind").isin(*NO_OPERATION), 0).otherwise(F.coalesce("operations", F.lit(1))),
        "line": F.when(~good, F.col("value")),
        "date": F.when(good, F.to_date("ended_at")),
    }
    return typed.select(*(columns.get(name, F.col(name)).alias(name) for name in BRONZE.columns))


def malformed(bronze: DataFrame) -> DataFrame:
    """Return the lines that are no records, with the file and the reason."""
    return bronze.where("date IS NULL").select("file", "reason", "line")


def newer(malformed: DataFrame) -> DataFrame:
    """Of the lines that are no records, return those that a newer pairbus has written as records."""
    return malformed.where(F.col("reason") == _NEWER)


def silver(bronze: DataFrame, aliases: Mapping[str, str] | None = None) -> DataFrame:
    """Return each record once, with names in one spelling.

    :param aliases: other names of namespaces: an embedded broker calls itself by its name, while its clients know
        nothing but its address.
    """
    records = once(bronze.where("date IS NOT NULL"))
    entity = _spelling("entity")
    backlog_of = F.when(entity.contains(f"/{TRANSFER}/"), F.substring_index(entity, "/", 1))
    namespace = F.lower("namespace")
    columns = {
        "entity": entity,
        "destination": _spelling("destination"),
        "namespace": _renamed(namespace, aliases or {}),
        "pairing": _renamed(F.coalesce(backlog_of, namespace), aliases or {}),
    }
    return records.select(*(columns.get(name, F.col(name)).alias(name) for name in SILVER.columns))


def once(records: DataFrame) -> DataFrame:
    """Return one of the records that have the same id: the same one, whatever their order.

    As a rule few have another with the same id. They are found by a hash of it, and only they are sorted.
    """
    hashed = records.withColumn("_hash", F.xxhash64("id"))
    twice = hashed.groupBy("_hash").count().where("count > 1").select("_hash").localCheckpoint()
    if twice.count() > _FEW:
        return _first_of_each(records)
    some = F.broadcast(twice)
    alone, several = (hashed.join(some, "_hash", how).drop("_hash") for how in ("left_anti", "left_semi"))
    return alone.unionByName(_first_of_each(several))


def _first_of_each(records: DataFrame) -> DataFrame:
    others = [name for name in records.columns if name != "id"]
    which = Window.partitionBy("id").orderBy(*others)
    return records.withColumn("n", F.row_number().over(which)).where("n = 1").drop("n")


def _time(name: str) -> Column:
    text = F.col(name)
    has_zone = text.endswith("Z") | text.rlike(r"[+-]\d\d:?\d\d$")
    return F.when(has_zone, text.try_cast("timestamp"))


def _reason() -> Column:
    """Say what is wrong with a line, as :meth:`pairbus.core.ledger.Record.from_json` does where that can be known."""
    rules: list[tuple[Column, Column]] = [
        (F.trim("value") == "", F.lit("an empty line")),
        (F.col("v") > VERSION, F.lit(_NEWER)),
        (F.col(BROKEN).isNotNull() & F.get_json_object("value", "$").isNull(), F.lit("not a line of JSON")),
        (F.col(BROKEN).isNotNull(), F.lit("not a JSON object, or a field that is to be a whole number is none")),
    ]
    rules += [(F.col(name).isNull(), F.lit(f"field '{name}' is missing")) for name in _REQUIRED]
    rules += [
        (~F.col(name).isin(*_words(values)), _wrong(name, f"expected one of {', '.join(_words(values))}"))
        for name, values in _VALUES.items()
    ]
    rules += [(F.col(name) < 0, _wrong(name, "expected 0 or more")) for name in _COUNTS]
    rules += [
        (F.col(name).isNotNull() & F.col(typed).isNull(), _wrong(name, "expected a time with its zone"))
        for name, typed in (("at", "ended_at"), ("oldest_at", "enqueued_at"))
    ]
    return F.coalesce(*(F.when(is_wrong, reason) for is_wrong, reason in rules))


def _words(values: Iterable[Enum]) -> Sequence[str]:
    return [str(each.value) for each in values]


def _wrong(name: str, expected: str) -> Column:
    return F.concat(F.lit(f"field '{name}' is "), F.col(name).cast("string"), F.lit(f": {expected}"))


def _spelling(name: str) -> Column:
    """What two spellings of one entity have in common (S1), as :func:`pairbus.core.naming.entity_key` does."""
    return F.lower(F.btrim(F.col(name), F.lit("/")))


def _renamed(name: Column, aliases: Mapping[str, str]) -> Column:
    renamed = name
    for alias, meant in aliases.items():
        renamed = F.when(name == alias.lower(), meant.lower()).otherwise(renamed)
    return renamed
