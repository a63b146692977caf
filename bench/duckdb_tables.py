"""The gold tables a second time, in DuckDB's SQL, from the same ledger files: to compare with what Spark makes."""

# ruff: noqa: E501 (SQL reads best in lines of its own length)

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from pairbus.core.pricing import Plan

_COLUMNS = {
    **dict.fromkeys(("id", "at", "metered_by", "client", "namespace", "entity", "kind", "stage", "outcome"), "VARCHAR"),
    **dict.fromkeys(("messages", "operations", "bytes", "duration_us"), "BIGINT"),
    **dict.fromkeys(("destination", "oldest_at", "detail"), "VARCHAR"),
}
_KINDS = [
    "send",
    "receive",
    "empty-receive",
    "peek",
    "complete",
    "abandon",
    "defer",
    "dead-letter",
    "renew",
    "ping",
    "schedule",
    "cancel",
    "session-state",
    "management",
    "turn",
    "dropped",
]

_SILVER = """
CREATE OR REPLACE TABLE silver AS
WITH good AS (
    SELECT * REPLACE ("at"::TIMESTAMPTZ AT TIME ZONE 'UTC' AS "at", lower(namespace) AS namespace, lower(trim(entity, '/')) AS entity,
                      lower(trim(destination, '/')) AS destination,
                      CASE WHEN kind IN ('turn', 'dropped') THEN 0 ELSE operations END AS operations)
    FROM read_json({files}, format = 'newline_delimited', ignore_errors = true, columns = {columns})
    WHERE id IS NOT NULL AND kind IN {kinds} AND messages >= 0
)
SELECT DISTINCT ON (id) *, "at"::DATE AS date,
    CASE WHEN contains(entity, '/x-servicebus-transfer/') THEN split_part(entity, '/', 1) ELSE namespace END AS pairing
FROM good
"""

_COSTS = """
CREATE OR REPLACE TABLE usage AS
SELECT date, date_trunc('hour', "at") AS hour, metered_by, outcome, pairing, namespace, entity, client, stage, kind,
    CASE WHEN metered_by = 'broker' THEN 'broker' WHEN outcome = 'unknown' THEN 'doubt' ELSE 'sure' END AS side,
    sum(messages)::BIGINT AS messages, sum(operations)::BIGINT AS operations,
    coalesce(sum(bytes) FILTER (kind IN ('send', 'schedule', 'ping', 'receive', 'peek')), 0)::BIGINT AS bytes
FROM silver WHERE outcome <> 'failed' AND kind NOT IN ('turn', 'dropped') GROUP BY ALL;

CREATE OR REPLACE MACRO rest(metered, wanted, room) AS CASE WHEN metered THEN least(wanted, room) ELSE wanted END;

CREATE OR REPLACE TABLE counted AS
WITH brokers AS (SELECT DISTINCT date, hour, namespace FROM usage WHERE side = 'broker'
), measures AS (
    SELECT date, hour, pairing, namespace, entity, client, stage, kind, side, 'operations' AS measure, operations AS amount FROM usage
    UNION ALL SELECT date, hour, pairing, namespace, entity, client, stage, kind, side, 'messages', messages FROM usage
), totals AS (
    SELECT date, hour, namespace, entity, kind, measure, brokers.hour IS NOT NULL AS metered,
        coalesce(sum(amount) FILTER (side = 'sure'), 0)::HUGEINT AS sure,
        coalesce(sum(amount) FILTER (side = 'doubt'), 0)::HUGEINT AS doubt,
        coalesce(sum(amount) FILTER (side = 'broker'), 0)::HUGEINT AS broker
    FROM measures LEFT JOIN brokers USING (date, hour, namespace) GROUP BY ALL
), dues AS (
    SELECT *, rest(metered, sure, broker) AS sure_due, rest(metered, doubt, broker - rest(metered, sure, broker)) AS doubt_due
    FROM totals
), bounds AS (
    SELECT measures.*, sum(amount) OVER mine AS upto, sum(amount) OVER whole AS total,
        CASE side WHEN 'sure' THEN sure_due WHEN 'doubt' THEN doubt_due ELSE broker - sure_due - doubt_due END AS due
    FROM measures JOIN dues USING (date, hour, namespace, entity, kind, measure)
    WINDOW whole AS (PARTITION BY date, hour, namespace, entity, kind, side, measure),
        mine AS (PARTITION BY date, hour, namespace, entity, kind, side, measure ORDER BY client, stage ROWS UNBOUNDED PRECEDING)
), shares AS (
    SELECT *, coalesce(due * upto // nullif(total, 0) - due * (upto - amount) // nullif(total, 0), 0) AS part FROM bounds
), volumes AS (
    SELECT usage.*, metered, sum(bytes) OVER sides AS own, broker, sure_due, doubt_due,
        sum(bytes) FILTER (side = 'broker') OVER (PARTITION BY date, hour, namespace, entity, kind) AS metered_bytes
    FROM usage JOIN dues USING (date, hour, namespace, entity, kind) WHERE measure = 'operations'
    WINDOW sides AS (PARTITION BY date, hour, namespace, entity, kind, side)
), weighed AS (
    SELECT *, CASE WHEN own > 0 THEN bytes ELSE operations END AS weight,
        CASE WHEN NOT metered THEN own::HUGEINT
             WHEN coalesce(broker, 0) = 0 THEN 0
             WHEN side = 'sure' THEN metered_bytes::HUGEINT * sure_due // broker
             WHEN side = 'doubt' THEN metered_bytes::HUGEINT * (sure_due + doubt_due) // broker - metered_bytes::HUGEINT * sure_due // broker
             ELSE metered_bytes - metered_bytes::HUGEINT * (sure_due + doubt_due) // broker END AS volume
    FROM volumes
), volume_shares AS (
    SELECT *, sum(weight) OVER (PARTITION BY date, hour, namespace, entity, kind, side ORDER BY client, stage ROWS UNBOUNDED PRECEDING) AS upto,
        sum(weight) OVER (PARTITION BY date, hour, namespace, entity, kind, side) AS total FROM weighed
), all_shares AS (
    SELECT date, hour, pairing, namespace, entity, client, stage, kind, measure, part FROM shares
    UNION ALL SELECT date, hour, pairing, namespace, entity, client, stage, kind, 'bytes',
        coalesce(volume * upto // nullif(total, 0) - volume * (upto - weight) // nullif(total, 0), 0) FROM volume_shares
), summed AS (
    SELECT date, hour, pairing, namespace, entity, client, stage, kind,
        coalesce(sum(part) FILTER (measure = 'messages'), 0)::BIGINT AS messages,
        coalesce(sum(part) FILTER (measure = 'operations'), 0)::BIGINT AS operations,
        coalesce(sum(part) FILTER (measure = 'bytes'), 0)::BIGINT AS bytes
    FROM all_shares GROUP BY ALL
)
SELECT *, CASE WHEN kind IN ('complete', 'abandon', 'defer', 'dead-letter', 'renew') THEN 0 ELSE operations END AS charged
FROM summed WHERE operations > 0 OR messages > 0 OR bytes > 0;

CREATE OR REPLACE TABLE cost_hourly AS
WITH hours AS (
    SELECT date, hour, sum(charged)::HUGEINT AS in_hour,
        sum(sum(charged)) OVER (PARTITION BY date_trunc('month', hour) ORDER BY hour)::HUGEINT AS upto
    FROM counted GROUP BY date, hour
), due AS (SELECT *, charge(upto) - charge(upto - in_hour) AS due FROM hours
), cuts AS (
    SELECT counted.*, due.due, in_hour, sum(charged) OVER (
        PARTITION BY date, hour ORDER BY namespace, entity, client, stage, kind ROWS UNBOUNDED PRECEDING) AS reached
    FROM counted JOIN due USING (date, hour)
)
SELECT hour, namespace, entity, client, stage, kind, pairing, messages, operations, charged,
    CASE WHEN in_hour = 0 THEN 0 ELSE due * reached // in_hour - due * (reached - charged) // in_hour END::BIGINT AS nanos,
    bytes, (bytes::HUGEINT * coalesce(nanos_per_gb, 0) // 1000000000)::BIGINT AS bandwidth_nanos, date
FROM cuts LEFT JOIN bandwidth ON bandwidth.at_stage = stage
    AND bandwidth.direction = CASE WHEN kind IN ('send', 'schedule', 'ping') THEN 'send' WHEN kind IN ('receive', 'peek') THEN 'receive' END;

CREATE OR REPLACE TABLE message_cost AS
WITH rows AS (
    SELECT *, regexp_replace(entity, '(/subscriptions/|/\\$).*$', '') AS target,
        CASE WHEN stage IN ('park', 'syphon') THEN 'backlog' WHEN stage IN ('ping', 'idle', 'setup') THEN 'upkeep'
             WHEN kind IN ('send', 'schedule') THEN 'direct' WHEN kind = 'receive' THEN 'shared' ELSE 'other' END AS way
    FROM cost_hourly
), sent AS (
    SELECT date, pairing, target, coalesce(sum(messages) FILTER (way = 'direct'), 0)::HUGEINT AS straight,
        coalesce(sum(messages) FILTER (stage = 'syphon' AND kind = 'send'), 0)::HUGEINT AS carried
    FROM rows GROUP BY ALL
), received AS (
    SELECT date, pairing, target, sum(charged)::HUGEINT AS operations, sum(nanos)::HUGEINT AS nanos,
        sum(bytes)::HUGEINT AS bytes, sum(bandwidth_nanos)::HUGEINT AS bandwidth_nanos
    FROM rows WHERE way = 'shared' GROUP BY ALL
), split AS (
    SELECT *, coalesce(operations * carried // nullif(carried + straight, 0), 0) AS ops_back,
        coalesce(nanos * carried // nullif(carried + straight, 0), 0) AS nanos_back,
        coalesce(bytes * carried // nullif(carried + straight, 0), 0) AS bytes_back,
        coalesce(bandwidth_nanos * carried // nullif(carried + straight, 0), 0) AS bandwidth_back
    FROM received JOIN sent USING (date, pairing, target)
), parts AS (
    SELECT date, pairing, way, CASE WHEN kind IN ('send', 'schedule') AND stage <> 'syphon' THEN messages ELSE 0 END AS messages,
        charged AS operations, nanos, bytes, bandwidth_nanos FROM rows WHERE way <> 'shared'
    UNION ALL SELECT date, pairing, 'backlog', 0, ops_back, nanos_back, bytes_back, bandwidth_back FROM split
    UNION ALL SELECT date, pairing, 'direct', 0, operations - ops_back, nanos - nanos_back, bytes - bytes_back,
        bandwidth_nanos - bandwidth_back FROM split
), summed AS (
    SELECT date, pairing, way, sum(messages)::BIGINT AS messages, sum(operations)::BIGINT AS operations,
        sum(nanos)::BIGINT AS nanos, sum(bytes)::BIGINT AS bytes, sum(bandwidth_nanos)::BIGINT AS bandwidth_nanos
    FROM parts GROUP BY ALL
)
SELECT pairing, way, messages, operations, nanos, bytes, bandwidth_nanos,
    operations::DOUBLE / nullif(messages, 0) AS operations_per_message,
    (nanos + bandwidth_nanos)::DOUBLE / nullif(messages, 0) AS nanos_per_message, date
FROM summed WHERE messages > 0 OR operations > 0 OR bytes > 0;

CREATE OR REPLACE TABLE client_vs_broker AS
WITH both_sides AS (SELECT date, namespace FROM usage GROUP BY ALL HAVING count(DISTINCT metered_by) = 2
), sums AS (
    SELECT date, namespace, entity, kind,
        coalesce(sum(operations) FILTER (metered_by = 'client'), 0)::BIGINT AS client_operations,
        coalesce(sum(operations) FILTER (side = 'doubt'), 0)::BIGINT AS client_unknown,
        coalesce(sum(operations) FILTER (metered_by = 'broker'), 0)::BIGINT AS broker_operations,
        coalesce(sum(messages) FILTER (metered_by = 'client'), 0)::BIGINT AS client_messages,
        coalesce(sum(messages) FILTER (metered_by = 'broker'), 0)::BIGINT AS broker_messages
    FROM usage SEMI JOIN both_sides USING (date, namespace) GROUP BY ALL
)
SELECT namespace, entity, kind, client_operations, client_unknown, broker_operations,
    broker_operations - client_operations AS operations_difference, client_messages, broker_messages,
    broker_messages - client_messages AS messages_difference, date FROM sums;
"""

_BACKLOG = """
CREATE OR REPLACE TABLE instants AS
SELECT pairing AS namespace, destination, "at",
    coalesce(sum(messages) FILTER (stage = 'park'), 0)::BIGINT AS parked,
    coalesce(sum(messages) FILTER (stage = 'syphon'), 0)::BIGINT AS delivered
FROM silver
WHERE metered_by = 'client' AND outcome = 'done' AND destination IS NOT NULL
    AND ((stage = 'park' AND kind IN ('send', 'schedule')) OR (stage = 'syphon' AND kind IN ('send', 'dead-letter')))
GROUP BY ALL;

CREATE OR REPLACE TABLE flows AS
WITH balances AS (
    SELECT *, sum(parked) OVER upto AS come, sum(parked - delivered) OVER upto AS balance FROM instants
    WINDOW upto AS (PARTITION BY namespace, destination ORDER BY "at")
)
SELECT *, balance - least(0, min(balance) OVER (PARTITION BY namespace, destination ORDER BY "at")) AS depth FROM balances;

CREATE OR REPLACE TABLE parks AS
SELECT namespace, destination, min("at") AS parked_at, sum(parked) AS parked, max(come) AS come, max(come) - sum(parked) AS come_before
FROM flows WHERE parked > 0 GROUP BY namespace, destination, date_trunc('minute', "at");

CREATE OR REPLACE TABLE days AS SELECT date, max("at") AS last FROM silver GROUP BY ALL;

CREATE OR REPLACE TABLE backlog_minutely AS
WITH clock AS (
    SELECT date, unnest(generate_series(date::TIMESTAMP, last, INTERVAL 1 MINUTE)) AS minute FROM days
), queues AS (SELECT DISTINCT namespace, destination FROM flows
), sums AS (
    SELECT namespace, destination, date_trunc('minute', "at") AS minute, sum(parked) AS parked, sum(delivered) AS delivered
    FROM flows GROUP BY ALL
), states AS (
    SELECT namespace, destination, date, minute, coalesce(parked, 0)::BIGINT AS parked, coalesce(delivered, 0)::BIGINT AS delivered
    FROM clock CROSS JOIN queues LEFT JOIN sums USING (namespace, destination, minute)
), deep AS (
    SELECT states.*, flows.depth, flows.come - flows.depth AS gone
    FROM states ASOF JOIN flows ON states.namespace = flows.namespace AND states.destination = flows.destination
        AND flows."at" < states.minute + INTERVAL 1 MINUTE
    WHERE depth > 0 OR states.parked > 0 OR states.delivered > 0
)
SELECT deep.namespace, deep.destination, minute, deep.parked, deep.delivered, depth::BIGINT AS depth,
    CASE WHEN depth > 0 THEN parked_at END AS oldest_at,
    CASE WHEN depth > 0 THEN epoch_us(minute + INTERVAL 1 MINUTE) - epoch_us(parked_at) ELSE 0 END AS oldest_age_us, date
FROM deep ASOF LEFT JOIN parks ON deep.namespace = parks.namespace AND deep.destination = parks.destination
    AND parks.come_before <= deep.gone;

CREATE OR REPLACE TABLE backlog_open AS
WITH ends AS (
    SELECT days.date, namespace, destination, max(come - depth) AS gone
    FROM days JOIN flows ON flows."at"::DATE <= days.date GROUP BY ALL
)
SELECT namespace, destination, parked_at, least(parked, come - gone)::BIGINT AS messages, date
FROM ends JOIN parks USING (namespace, destination) WHERE parked_at::DATE <= date AND come > gone;
"""

_AVAILABILITY = """
CREATE OR REPLACE TABLE turns AS
SELECT namespace, entity, client, id, "at", CASE kind WHEN 'turn' THEN detail END AS state
FROM silver WHERE metered_by = 'client' AND kind IN ('turn', 'ping');

CREATE OR REPLACE TABLE episodes AS
WITH seen AS (
    SELECT *, coalesce(last_value(state IGNORE NULLS) OVER (view ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 'healthy') AS was,
        lag("at") OVER view AS before
    FROM turns WINDOW view AS (PARTITION BY namespace, entity, client ORDER BY "at", id)
), numbered AS (
    SELECT *, count(*) FILTER (state IN ('suspect', 'engaged') AND (was = 'healthy' OR "at" > before + INTERVAL 31 MINUTE))
        OVER (PARTITION BY namespace, entity, client ORDER BY "at", id) AS episode
    FROM seen
), told AS (
    SELECT namespace, entity, client, episode, min("at") AS began, min("at") FILTER (state = 'engaged') AS engaged,
        max("at") FILTER (state = 'healthy') AS healed, max("at") AS last_at,
        arg_max(state, ("at", id)) FILTER (state IS NOT NULL) = 'healthy' AS over_
    FROM numbered WHERE episode > 0 GROUP BY ALL
)
SELECT *, CASE WHEN over_ THEN healed ELSE last_at END AS reach FROM told;

CREATE OR REPLACE TABLE seen AS
WITH islands AS (
    SELECT *, max(reach) OVER (PARTITION BY namespace, entity ORDER BY began, reach, client
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM episodes
), numbered AS (
    SELECT *, count(*) FILTER (reached IS NULL OR began > reached)
        OVER (PARTITION BY namespace, entity ORDER BY began, reach, client) AS island FROM islands
), merged AS (
    SELECT namespace, entity, min(began) AS began, min(engaged) AS engaged, max(reach) AS reach,
        arg_max(over_, (reach, over_)) AS over_, count(DISTINCT client) AS clients FROM numbered GROUP BY namespace, entity, island
), minutes AS (
    SELECT pairing AS namespace, entity, min("at") AS accepted FROM silver
    WHERE metered_by = 'client' AND stage = 'direct' AND kind IN ('send', 'schedule') AND outcome = 'done'
    GROUP BY pairing, entity, date_trunc('minute', "at")
), again AS (
    SELECT merged.namespace, merged.entity, began, min(accepted) AS accepted
    FROM merged JOIN minutes ON merged.namespace = minutes.namespace AND merged.entity = minutes.entity AND accepted > reach
    WHERE NOT over_ GROUP BY ALL
)
SELECT merged.*, CASE WHEN over_ THEN reach ELSE accepted END AS ended,
    lead(began) OVER (PARTITION BY namespace, entity ORDER BY began) AS next_one
FROM merged LEFT JOIN again USING (namespace, entity, began);

CREATE OR REPLACE TABLE outages AS
WITH stored AS (
    SELECT seen.namespace, entity, began, sum(parked) AS parked, max("at") FILTER (parked > 0) AS last_park
    FROM seen JOIN flows ON flows.namespace = seen.namespace AND flows.destination = seen.entity AND "at" >= began
        AND (next_one IS NULL OR "at" < next_one) AND (ended IS NULL OR "at" <= ended + INTERVAL 1 MINUTE)
    GROUP BY ALL HAVING sum(parked) > 0
), emptied AS (
    SELECT stored.namespace, entity, began, min("at") AS drained FROM stored
    JOIN flows ON flows.namespace = stored.namespace AND flows.destination = stored.entity AND depth = 0 AND "at" >= last_park
    GROUP BY ALL
), latest AS (SELECT namespace, destination AS entity, arg_max(depth, "at") AS depth FROM flows GROUP BY ALL
), known AS (
    SELECT * FROM seen LEFT JOIN stored USING (namespace, entity, began) LEFT JOIN emptied USING (namespace, entity, began)
        LEFT JOIN latest USING (namespace, entity)
)
SELECT namespace, entity, began, engaged, ended, clients,
    epoch_us(engaged) - epoch_us(began) AS failover_us, epoch_us(ended) - epoch_us(began) AS recovery_us,
    coalesce(parked, 0)::BIGINT AS parked, CASE WHEN parked > 0 AND drained IS NULL THEN depth ELSE 0 END::BIGINT AS "left", drained,
    CASE WHEN epoch_us(drained) < epoch_us(ended) THEN 0 ELSE epoch_us(drained) - epoch_us(ended) END AS drain_us,
    began::DATE AS date
FROM known;

CREATE OR REPLACE TABLE availability_daily AS
WITH sends AS (
    SELECT date, pairing AS namespace, CASE stage WHEN 'park' THEN coalesce(destination, entity) ELSE entity END AS entity,
        stage, outcome, "at", messages
    FROM silver WHERE metered_by = 'client' AND kind IN ('send', 'schedule') AND stage IN ('direct', 'park')
), held AS (
    SELECT date, namespace, entity, sum(messages) AS retried FROM sends
    WHERE stage = 'direct' AND outcome <> 'done' AND EXISTS (
        SELECT 1 FROM outages WHERE outages.namespace = sends.namespace AND outages.entity = sends.entity
            AND sends."at" >= began - INTERVAL 1 SECOND AND (ended IS NULL OR sends."at" <= ended))
    GROUP BY ALL
), sums AS (
    SELECT date, namespace, entity, coalesce(sum(messages) FILTER (stage = 'direct' AND outcome = 'done'), 0)::BIGINT AS direct,
        coalesce(sum(messages) FILTER (stage = 'park' AND outcome = 'done'), 0)::BIGINT AS parked,
        coalesce(sum(messages) FILTER (outcome <> 'done'), 0)::BIGINT AS unaccepted
    FROM sends GROUP BY ALL
), counts AS (
    SELECT date, namespace, entity, direct, parked, coalesce(retried, 0)::BIGINT AS retried,
        unaccepted - coalesce(retried, 0)::BIGINT AS failed FROM sums LEFT JOIN held USING (date, namespace, entity)
)
SELECT namespace, entity, direct + parked + failed AS attempted, direct, parked, failed, retried,
    (direct + parked)::DOUBLE / nullif(direct + parked + failed, 0) AS with_pairing,
    direct::DOUBLE / nullif(direct + parked + failed, 0) AS without_pairing, date
FROM counts;
"""


class Duck:
    """Tables of ledger files, in memory."""

    def __init__(self, threads: int = 2) -> None:
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'")

    def make(self, files: Iterable[Path], plan: Plan) -> None:
        """Make all tables."""
        self.connection.execute(_charge(plan))
        self.connection.execute(
            "CREATE OR REPLACE TABLE bandwidth (direction TEXT, at_stage TEXT, nanos_per_gb HUGEINT)"
        )
        for price in plan.bandwidth:
            given = [price.direction.value, price.stage.value, price.nanos_per_gb]
            self.connection.execute("INSERT INTO bandwidth VALUES (?, ?, ?)", given)
        names = [str(file) for file in files]
        silver = _SILVER.format(files=names, columns=_COLUMNS, kinds=tuple(_KINDS))
        for statements in (silver, _COSTS, _BACKLOG, _AVAILABILITY):
            self.connection.execute(statements)

    def rows(self, table: str, columns: Iterable[str], key: Iterable[str]) -> list[tuple[Any, ...]]:
        """Return a table, in the order of its key."""
        chosen = ", ".join(f'"{name}"' for name in columns)
        order = ", ".join(f'"{name}"' for name in key)
        return self.connection.execute(f"SELECT {chosen} FROM {table} ORDER BY {order}").fetchall()  # noqa: S608


def _charge(plan: Plan) -> str:
    """Write a plan's tiers as a macro."""
    terms: list[str] = []
    start = 0
    for tier in plan.tiers:
        end = "x" if tier.up_to is None else f"least(x, {tier.up_to})"
        terms.append(f"greatest(0, {end} - {start})::HUGEINT * {tier.nanos_per_million}")
        start = tier.up_to or start
    return f"CREATE OR REPLACE MACRO charge(x) AS ({' + '.join(terms)}) // 1000000"
