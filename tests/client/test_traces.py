"""A parked message's trace goes on through the syphon to its destination, and K1: the ledger tells of every step."""

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.client.conftest import Play
from tests.client.stage import Records, Stage, State

from pairbus.core.ledger import Kind, Outcome
from pairbus.core.ledger import Stage as At
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.opentelemetry import Traces


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def trace_in(message: ServiceBusReceivedMessage) -> int:
    header = (message.application_properties or {})[b"traceparent"]
    assert isinstance(header, bytes)
    return int(header.split(b"-")[1], 16)


def test_k1_a_parked_messages_trace_goes_on_to_its_destination(play: Play) -> None:
    """Y1, K1: the application's span, the park, the move and the message that arrives are one trace."""
    exporter, records = InMemorySpanExporter(), Records()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("down")
            with provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
                await sender.send_messages(ServiceBusMessage("first"))
                await sender.send_messages(ServiceBusMessage("second"))
            assert stage.factory.availability.entity("orders").state is State.ENGAGED
            stage.fault("clear")
            arrived = await stage.take(count=2)
        ours = checkout.get_span_context().trace_id
        assert [trace_in(message) for message in arrived] == [ours, ours]
        names = [span.name for span in exporter.get_finished_spans() if trace_of(span) == ours]
        assert sum(name.startswith("send") and "x-servicebus-transfer" in name for name in names) == 2
        assert "move orders" in names
        told = {(each.kind, each.stage) for each in records if each.outcome is Outcome.DONE}
        assert told >= {
            (Kind.SEND, At.PARK),
            (Kind.RECEIVE, At.SYPHON),
            (Kind.SEND, At.SYPHON),
            (Kind.COMPLETE, At.SYPHON),
            (Kind.MANAGEMENT, At.SETUP),
        }

    play(
        scenario,
        pairing={"enable_syphon": True, "backlog_queue_count": 1},
        factory={"instrument": Instrument([records], tracer=Traces(provider), client="test")},
    )


def test_y2_an_idle_syphon_costs_one_long_poll_for_each_queue(play: Play) -> None:
    """Y2: nothing is asked twice while nothing comes; and when it is closed, it does not wait for the poll's end."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            for number in range(20):
                await sender.send_messages(ServiceBusMessage(f"{number}"))
        await stage.factory.close()
        polls = [each.entity for each in stage.records if each.stage is At.IDLE]
        assert sorted(polls) == [f"{stage.backlog}/{index}" for index in range(2)]
        assert not any(each.stage is At.SYPHON for each in stage.records)

    play(scenario, pairing={"enable_syphon": True})
