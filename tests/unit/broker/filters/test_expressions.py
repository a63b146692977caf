"""What each expression makes of two messages: a full one and a bare one."""

import datetime as dt
from collections.abc import Iterator

import pytest
from tests.support.filters import ENQUEUED, GUID, facts_of

from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Byte, Decimal128, Described, Float, Int, Symbol, Timestamp, ULong
from pairbus.broker.filters import EvaluationError, Facts, SqlFilter
from pairbus.broker.filters.values import Value

NOON = Timestamp.of(dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC))

PARAMETERS: dict[str, Value] = {
    "@red": "red",
    "@ten": 10,
    "@noon": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "@hour": dt.timedelta(hours=1),
    "@ever": dt.timedelta.max,
    "@guid": GUID,
    "@yes": True,
    "@name": "Color",
}


def order() -> Facts:
    """A message with all there can be."""
    return facts_of(
        Properties(
            message_id="m-1",
            to="warehouse",
            subject="order",
            reply_to="answers",
            correlation_id="c-1",
            content_type=Symbol("application/json"),
            group_id="s-1",
            reply_to_group_id="rs-1",
        ),
        {
            "Color": "red",
            "quantity": 10,
            "small": Int(-3),
            "byte": Byte(7),
            "price": 2.5,
            "half": Float(0.5),
            "big": ULong(2**63 + 5),
            "most": 2**63 - 1,
            "Urgent": True,
            "empty": "",
            "nothing": None,
            "text ten": "10",
            "percent": "100%",
            "under": "a_b",
            "lines": "one\ntwo",
            "at": NOON,
            "later": Timestamp(NOON + 3_600_000),
            "took": Described(Symbol("com.microsoft:timespan"), 36_000_000_000),
            "offset": Described(Symbol("com.microsoft:datetime-offset"), 621_355_968_000_000_000 + NOON * 10_000),
            "link": Described(Symbol("com.microsoft:uri"), "https://example.com/"),
            "guid": GUID,
            "raw": b"\x01",
            "exact": Decimal128(bytes(16)),
            "odd": Described(Symbol("com.microsoft:timespan"), "an hour"),
            "other": Described(Symbol("their:own"), 1),
            "sys.Label": "a user's own",
            "a]b": 1,
            'a"b': 2,
            "größe": 3,
        },
        header=Header(ttl=60_000, delivery_count=2),
        annotations={
            Symbol("x-opt-partition-key"): "pk",
            Symbol("x-opt-scheduled-enqueue-time"): NOON,
            Symbol("x-opt-via-partition-key"): "via",
            Symbol("x-opt-enqueue-sequence-number"): 3,
        },
    )


def bare() -> Facts:
    """A message with nothing but a body."""
    return facts_of()


T, F, U, E = "true", "false", "unknown", "error"

ON_ORDER: dict[str, dict[str, list[str]]] = {
    "equality of one kind": {
        T: ["Color = 'red'", "quantity = 10", "Urgent = TRUE", "10 = quantity", "empty = ''", "guid = @guid",
            "Color <> 'blue'", "quantity != 11", "Urgent <> FALSE", "at = @noon", "took = @hour", "1 = 1"],
        F: ["Color = 'RED'", "Color = 'blue'", "quantity = 11", "Urgent = FALSE", "Color <> 'red'", "1 = 0",
            "guid <> @guid", "raw <> raw"],
    },
    "order": {
        T: ["quantity > 9", "quantity >= 10", "quantity < 11", "quantity <= 10", "Color > 'blue'", "Color < 'rede'",
            "later > at", "at <= @noon", "took >= @hour", "small < 0", "'B' < 'a'"],
        F: ["quantity > 10", "quantity < 10", "Color > 'red'", "later < at", "took > @hour", "price > 2.5"],
        U: ["Urgent > FALSE", "guid < @guid", "raw < raw"],
    },
    "numbers are promoted": {
        T: ["quantity = 10.0", "price = 2.5E0", "half = 0.5", "byte = 7", "small = -3", "price > 2", "quantity < 1E3",
            "big > 9223372036854775807", "most = 9223372036854775807", "0.1 + 0.2 > 0.3", "25E-1 = price"],
        F: ["price = 2", "half = 0", "small = 3"],
    },
    "values of different kinds are never comparable": {
        U: ["Color = 10", "quantity = '10'", "[text ten] = 10", "[text ten] > 5", "Urgent = 1", "Urgent = 'TRUE'",
            "guid = '00112233-4455-6677-8899-aabbccddeeff'", "at = '2024-02-29T12:00:00'", "quantity <> '10'",
            "NOT quantity = '10'", "at > 5", "exact = 0", "other = 1", "odd = @hour", "raw = 'x'"],
        T: ["exact IS NOT NULL", "EXISTS(other)"],
    },
    "what is not there, or null, is unknown": {
        U: ["missing = 1", "missing <> 1", "NOT missing = 1", "missing = missing", "nothing = 1", "nothing <> 'x'",
            "Color = NULL", "Color <> NULL", "NULL = NULL", "missing > 5", "missing + 1 = 2", "-missing = 1",
            "missing LIKE '%'", "Color LIKE missing", "missing IN (1, 2)", "missing NOT IN (1, 2)",
            "'a' + missing = 'a'", "Color LIKE 'a' ESCAPE missing", "quantity / missing = 1", "p('missing') = 1",
            "p(missing) = 1"],
    },
    "IS NULL and EXISTS": {
        T: ["missing IS NULL", "nothing IS NULL", "Color IS NOT NULL", "EXISTS(Color)", "EXISTS (nothing)",
            "NOT EXISTS(missing)", "sys.Label IS NOT NULL", "EXISTS(sys.Label)", "empty IS NOT NULL",
            "p('missing') IS NULL", "sys.LockToken IS NULL", "EXISTS(user.Color)"],
        F: ["missing IS NOT NULL", "nothing IS NOT NULL", "Color IS NULL", "EXISTS(missing)", "NOT EXISTS(Color)",
            "EXISTS(sys.DeadLetterSource)"],
    },
    "AND, OR and NOT": {
        T: ["Color = 'red' AND quantity = 10", "Color = 'x' OR quantity = 10", "NOT Color = 'x'",
            "missing = 1 OR Color = 'red'", "Color = 'red' OR missing = 1", "NOT (missing = 1 AND Color = 'x')",
            "NOT NOT Color = 'red'", "not color = 'x' and quantity = 10"],
        F: ["Color = 'red' AND quantity = 1", "Color = 'x' OR quantity = 1", "NOT Color = 'red'",
            "missing = 1 AND Color = 'x'", "Color = 'x' AND missing = 1", "NOT (missing = 1 OR Color = 'red')"],
        U: ["missing = 1 AND Color = 'red'", "Color = 'red' AND missing = 1", "missing = 1 OR Color = 'x'",
            "Color = 'x' OR missing = 1", "NOT (missing = 1 AND Color = 'red')", "missing = 1 AND missing = 2",
            "missing = 1 OR missing = 2", "NOT NOT missing = 1"],
    },
    "precedence": {
        T: ["1 = 1 OR 1 = 1 AND 1 = 0", "(1 = 1 OR 1 = 1) AND NOT 1 = 0", "NOT 1 = 0 AND 1 = 1", "2 + 3 * 4 = 14",
            "(2 + 3) * 4 = 20", "10 - 4 - 3 = 3", "100 / 10 / 5 = 2", "2 * 3 % 4 = 2", "-2 + 3 = 1", "- - 2 = 2",
            "-+-2 = 2", "2 - -3 = 5", "((1)) = ((1))", "((1 = 1))", "1 + 1 > 1"],
        F: ["(1 = 1 OR 1 = 1) AND 1 = 0", "NOT (1 = 0 OR 1 = 1)", "NOT 1 = 1 OR 1 = 0"],
    },
    "arithmetic as in C#": {
        T: ["quantity + 5 = 15", "quantity - 15 = -5", "quantity * 2 = 20", "quantity / 4 = 2", "quantity % 4 = 2",
            "-7 / 2 = -3", "-7 % 2 = -1", "7 % -2 = 1", "quantity / 4.0 = 2.5", "price * 2 = 5", "5.5 % 2 = 1.5",
            "1.0 / 0 > 1E308", "-1 / 0.0 < -1E308", "0.0 / 0 <> 0.0 / 0", "5.0 % 0 <> 5", "1E308 * 10 > 1E308",
            "+quantity = 10", "-price = -2.5", "1E308 * 10 % 2 <> 0"],
        F: ["0.0 / 0 = 0.0 / 0"],
        E: ["quantity / 0 = 1", "quantity % 0 = 1", "most + 1 = 0", "most * 2 = 0", "-most - 2 = 0", "big + 1 = 0",
            "Color - 1 = 0", "Color * 2 = 'redred'", "Urgent + 1 = 2", "-Color = 'x'", "+Urgent = TRUE", "raw + 1 = 0",
            "guid + 1 = 0", "-at = 1", "exact + 1 = 1", "other * 2 = 2", "quantity + TRUE = 11"],
    },
    "text is joined": {
        T: ["Color + 'dish' = 'reddish'", "'a' + 'b' + 'c' = 'abc'", "Color + quantity = 'red10'", "1 + 'a' = '1a'",
            "'' + TRUE = 'True'", "'' + price = '2.5'", "'' + 2.0 = '2'", "1 + 2 + 'a' = '3a'",
            "'id-' + guid = 'id-00112233-4455-6677-8899-aabbccddeeff'"],
        E: ["Color + raw = 'x'", "Color + at = 'x'", "Color + exact = 'x'"],
    },
    "times and spans": {
        T: ["later - at = @hour", "at + @hour = later", "later - @hour = at", "took + @hour > took",
            "took - took < took", "-took < took", "offset = at", "(later - at) <= took", "at + -took < at"],
        E: ["at + later = at", "@hour - at = at", "at * 2 = at", "took * 2 = took", "at + 1 = at",
            "took + @ever = took", "at + @ever + @ever + @ever = at"],
        U: ["took = 36000000000", "at = 1709208000000"],
    },
    "LIKE": {
        T: ["Color LIKE 'red'", "Color LIKE 'r%'", "Color LIKE '%d'", "Color LIKE '%e%'", "Color LIKE 'r_d'",
            "Color LIKE '___'", "Color LIKE '%'", "empty LIKE '%'", "empty LIKE ''", "Color LIKE '%%r%%'",
            "Color LIKE 'r%d'", "Color LIKE '_%'", "Color NOT LIKE 'R%'", "percent LIKE '100\\%' ESCAPE '\\'",
            "under LIKE 'a!_b' ESCAPE '!'", "under LIKE '___'", "Color LIKE '%' + 'ed'", "Color LIKE @red",
            "lines LIKE 'one%'", "lines LIKE 'one_two'", "link LIKE 'https://%'", "percent LIKE '%!%' ESCAPE '!'",
            "sys.Label LIKE 'ord%'", "Color LIKE 'r!ed' ESCAPE '!'"],
        F: ["Color LIKE 'RED'", "Color LIKE 're'", "Color LIKE '__'", "Color LIKE 'r%x'", "empty LIKE '_'",
            "Color NOT LIKE 'r%'", "Color LIKE 'a!_b' ESCAPE '!'", "under LIKE 'a!%b' ESCAPE '!'",
            "Color LIKE 'red_'", "Color LIKE 'rr%d'", "Color LIKE 'red%red'"],
        U: ["quantity LIKE '1%'", "quantity NOT LIKE '1%'", "Urgent LIKE '%'"],
        E: ["Color LIKE quantity", "Color LIKE 'a' ESCAPE Color", "Color LIKE Color + '!' ESCAPE '!'",
            "Color LIKE 'a' ESCAPE quantity"],
    },
    "IN": {
        T: ["Color IN ('blue', 'red')", "quantity IN (1, 10.0)", "Color NOT IN ('blue', 'green')",
            "quantity IN (5 + 5)", "Color IN ('red', missing)", "Color IN (NULL, 'red')", "Urgent IN (TRUE)",
            "sys.To IN ('warehouse')", "Color IN (10, 'red')"],
        F: ["Color IN ('blue')", "quantity IN (1, 2)", "Color NOT IN ('red', 'blue')", "Color NOT IN (missing, 'red')"],
        U: ["Color IN ('blue', missing)", "Color NOT IN ('blue', NULL)", "Color IN (10)", "NULL IN (1)"],
        E: ["quantity IN (1, 1 / 0)"],
    },
    "the rest is not looked at once the answer is certain": {
        T: ["1 = 1 OR quantity / 0 = 1", "Color IN ('red', 1 / 0)"],
        F: ["1 = 0 AND quantity / 0 = 1"],
        E: ["quantity / 0 = 1 AND 1 = 0", "missing = 1 AND quantity / 0 = 1", "1 = 1 AND quantity / 0 = 1",
            "NOT quantity / 0 = 1"],
    },
    "names and scopes": {
        T: ["COLOR = 'red'", "user.color = 'red'", "USER.Color = 'red'", "[Color] = 'red'", '"Color" = \'red\'',
            "user.[text ten] = '10'", "[text ten] = '10'", "[a]]b] = 1", '"a""b" = 2', "GRÖSSE IS NULL", "größe = 3",
            "[sys.Label] = 'a user''s own'", "SYS.label = 'order'", "sys.[Label] = 'order'", "[sys].Label = 'order'"],
        U: ["Label = 'order'", "user.Label = 'order'", "p = 1", "sys = 1"],
    },
    "functions": {
        T: ["property('Color') = 'red'", "p('COLOR') = 'red'", "P(@name) = 'red'", "p('col' + 'or') = 'red'",
            "newid() = @guid", "NOT NEWID() <> @guid", "p('sys.Label') <> 'order'", "p(p('name')) IS NULL"],
        E: ["p(quantity) = 1", "property(TRUE) = 1"],
    },
    "parameters": {
        T: ["Color = @red", "Color = @RED", "quantity = @ten", "quantity + @ten = 20", "Urgent = @yes", "at = @noon",
            "Color IN (@red)"],
    },
    "system properties": {
        T: ["sys.MessageId = 'm-1'", "sys.CorrelationId = 'c-1'", "sys.To = 'warehouse'", "sys.ReplyTo = 'answers'",
            "sys.Label = 'order'", "sys.Subject = 'order'", "sys.SessionId = 's-1'", "sys.ReplyToSessionId = 'rs-1'",
            "sys.ContentType = 'application/json'", "sys.PartitionKey = 'pk'", "sys.ViaPartitionKey = 'via'",
            "sys.TransactionPartitionKey = 'via'", "sys.ScheduledEnqueueTimeUtc = @noon",
            "sys.EnqueuedSequenceNumber = 3", "sys.SequenceNumber = 7", "sys.DeliveryCount = 2",
            "sys.TimeToLive < @hour", "sys.EnqueuedTimeUtc < @noon - @hour",
            "sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive", "sys.Size > 100", "sys.State = 'Active'",
            "sys.ForcePersistence = FALSE"],
    },
}  # fmt: skip

ON_BARE: dict[str, dict[str, list[str]]] = {
    "a message without properties": {
        T: ["sys.Label IS NULL", "NOT EXISTS(sys.MessageId)", "Color IS NULL", "NOT EXISTS(Color)",
            "sys.DeliveryCount = 0", "sys.TimeToLive IS NULL", "sys.ExpiresAtUtc IS NULL", "sys.SequenceNumber = 7",
            "1 = 1"],
        F: ["1 > 1", "EXISTS(sys.Label)"],
        U: ["sys.Label = 'a'", "sys.Label <> 'a'", "Color LIKE '%'", "sys.To IN ('a')", "sys.PartitionKey = 'pk'",
            "sys.ScheduledEnqueueTimeUtc > @noon", "sys.TimeToLive > @hour"],
    },
}  # fmt: skip


def cases() -> Iterator[Value]:
    for table, message in ((ON_ORDER, order), (ON_BARE, bare)):
        for group, outcomes in table.items():
            for outcome, expressions in outcomes.items():
                for expression in expressions:
                    yield pytest.param(message, expression, outcome, id=f"{group}: {expression} is {outcome}")


def test_there_are_enough_cases() -> None:
    assert len(list(cases())) >= 150


def outcome_of(expression: str, facts: Facts) -> str:
    filter_ = SqlFilter(expression, PARAMETERS)
    try:
        answer = filter_.matches(facts)
    except EvaluationError:
        return E
    return {True: T, False: F, None: U}[answer]


@pytest.mark.parametrize(("message", "expression", "outcome"), list(cases()))
def test_what_an_expression_makes_of_a_message(message: Value, expression: str, outcome: str) -> None:
    assert outcome_of(expression, message()) == outcome


def test_the_enqueued_time_is_the_one_handed_in() -> None:
    now = dt.datetime.fromtimestamp(ENQUEUED / 1000, dt.UTC)
    assert SqlFilter("sys.EnqueuedTimeUtc = @now", {"@now": now}).matches(bare())


def test_a_time_to_live_that_is_longer_than_a_header_can_say() -> None:
    long = facts_of(
        Properties(creation_time=Timestamp(1000), absolute_expiry_time=Timestamp(1000 + 10**10)),
        header=Header(ttl=0xFFFFFFFF),
    )
    assert SqlFilter("sys.TimeToLive = @long", {"@long": dt.timedelta(milliseconds=10**10)}).matches(long)


@pytest.mark.parametrize(("given", "text"), [(ULong(5), "5"), (GUID, str(GUID)), (b"\x01\xff", "01ff"), ("x", "x")])
def test_an_id_of_any_type_is_text(given: Value, text: str) -> None:
    facts = facts_of(Properties(message_id=given, correlation_id=given))
    assert SqlFilter("sys.MessageId = @text AND sys.CorrelationId = @text", {"@text": text}).matches(facts)


def test_of_names_that_differ_in_case_only_the_first_counts() -> None:
    facts = facts_of(user={"Color": "red", "COLOR": "blue", Symbol("size"): 1})
    assert facts.user == {"color": "red", "size": 1}
