"""Who may administer, and policies of entities as the SDK's administration client makes them."""

# The SDK's models are not typed throughout.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule, TrueRuleFilter
from tests.contract.conftest import Run
from tests.contract.lab import Lab

from pairbus.aio import NamespaceManager

KEY = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0ISE="
OTHER = "b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI="


async def collect(items: Any) -> list[Any]:  # noqa: ANN401 (the SDK's pages)
    return [item async for item in items]


OPERATIONS: dict[str, tuple[Callable[[NamespaceManager], Awaitable[Any]], str]] = {
    "get_queue": (lambda manager: manager.get_queue("orders"), "Manage,EntityRead claims required for this operation"),
    "list_queues": (lambda manager: collect(manager.list_queues()), "Manage,EntityRead claims required"),
    "list_topics": (lambda manager: collect(manager.list_topics()), "Manage,EntityRead claims required"),
    "namespace": (lambda manager: manager.get_namespace_properties(), "Manage,EntityRead claims required"),
    "create": (lambda manager: manager.create_queue("new"), "for specified action: Manage,EntityWrite"),
    "delete": (lambda manager: manager.delete_queue("orders"), "for specified action: Manage,EntityDelete"),
    "subscription": (lambda manager: manager.get_subscription("t", "s"), "access for 'GetSubscription'"),
    "subscribe": (lambda manager: manager.create_subscription("t", "s"), "access for 'CreateOrUpdateSubscription'"),
    "subscriptions": (lambda manager: collect(manager.list_subscriptions("t")), "access for 'EnumerateSubscriptions'"),
    "unrule": (lambda manager: manager.delete_rule("t", "s", "r"), "access for 'DeleteRule'"),
    "rule": (
        lambda manager: manager.create_rule("t", "s", "r", filter=TrueRuleFilter()),
        "access for 'CreateOrUpdateRule'",
    ),
    "rules": (lambda manager: collect(manager.list_rules("t", "s")), "access for 'EnumerateRules'"),
}


def test_only_who_has_the_manage_claim_may_administer(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        weak = await asyncio.to_thread(lab.broker.create_policy, "weak", ["Send", "Listen"])
        strong = await asyncio.to_thread(lab.broker.create_policy, "strong", ["Manage"])
        forged = re.sub("SharedAccessKey=[^;]*", f"SharedAccessKey={OTHER}", strong)
        async with lab.sdk.manager(weak) as manager:
            for operate, why in OPERATIONS.values():
                with pytest.raises(ClientAuthenticationError, match=why) as refused:
                    await operate(manager)
                assert refused.value.status_code == 401
        async with lab.sdk.manager(forged) as manager:
            for operate, _why in OPERATIONS.values():
                with pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
                    await operate(manager)
        async with lab.sdk.manager(strong) as manager:
            assert [queue.name async for queue in manager.list_queues()] == ["orders"]

    run(scenario)


def test_one_who_manages_an_entity_manages_no_other(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        root = lab.manager()
        await root.create_queue("mine")
        strong = await asyncio.to_thread(lambda: lab.broker.create_policy("owner", ["Manage"], entity="mine"))
        # The SDK signs its tokens for the whole namespace, for which the key of an entity is not good, as in the cloud.
        async with lab.sdk.manager(strong) as manager:
            with pytest.raises(ClientAuthenticationError):
                await manager.get_queue("orders")

    run(scenario)


def test_a_queue_has_policies_of_its_own(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        rule = AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights.SEND],
            key_name="checkout",
            primary_key=KEY,
            secondary_key=OTHER,
        )
        made = await manager.create_queue("guarded", authorization_rules=[rule])
        assert [(each.key_name, each.rights, each.primary_key) for each in made.authorization_rules or ()] == [
            ("checkout", ["Send"], KEY)
        ]
        await manager.create_topic("events", authorization_rules=[rule])
        await lab.restart()
        manager = lab.manager()
        shown = await manager.get_queue("guarded")
        assert [vars(each) for each in shown.authorization_rules or ()] == [
            vars(each) for each in made.authorization_rules or ()
        ]
        assert [each.key_name for each in (await manager.get_topic("events")).authorization_rules or ()] == ["checkout"]
        endpoint = lab.broker.connection_string.partition(";")[0]
        for key in (KEY, OTHER):
            client = lab.sdk.client(
                f"{endpoint};SharedAccessKeyName=checkout;SharedAccessKey={key};EntityPath=guarded;"
                "UseDevelopmentEmulator=true"
            )
            async with client, client.get_queue_sender("guarded") as sender:
                await sender.send_messages(ServiceBusMessage("a"))
        assert (await manager.get_queue_runtime_properties("guarded")).active_message_count == 2
        await manager.update_queue(shown, max_delivery_count=3)
        assert len((await manager.get_queue("guarded")).authorization_rules or ()) == 1, "an update keeps them"
        await manager.update_queue(shown, authorization_rules=[])
        assert not (await manager.get_queue("guarded")).authorization_rules
        client = lab.sdk.client(
            f"{endpoint};SharedAccessKeyName=checkout;SharedAccessKey={KEY};EntityPath=guarded;"
            "UseDevelopmentEmulator=true"
        )
        async with client:
            with pytest.raises(ServiceBusError) as refused:
                async with client.get_queue_sender("guarded") as sender:
                    await sender.send_messages(ServiceBusMessage("a"))
            assert isinstance(refused.value, (ServiceBusAuthenticationError, ServiceBusAuthorizationError))

    run_durable(scenario)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rights": ["Dance"]}, "'Dance'"),
        ({"rights": []}, "one or more of Send, Listen, Manage"),
        ({"key_name": None}, "a name of 1 to 256"),
        ({"primary_key": "x" * 300}, "a key that is not shown"),
        ({"type": "MagicRule"}, "'MagicRule'"),
    ],
    ids=str,
)
def test_policies_that_no_queue_can_have(run: Run, change: dict[str, Any], why: str) -> None:
    async def scenario(lab: Lab) -> None:
        rule = AuthorizationRule(type="SharedAccessAuthorizationRule", rights=["Send"], key_name="k", primary_key=KEY)
        for name, value in change.items():
            setattr(rule, name, value)
        with pytest.raises(HttpResponseError) as refused:
            await lab.manager().create_queue("guarded", authorization_rules=[rule])
        assert refused.value.status_code == 400
        assert why in str(refused.value.message)
        assert "xxx" not in str(refused.value.message)

    run(scenario)
