// Sends, receives and settles with @azure/service-bus, and prints what it saw as one line of JSON.
import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.argv[2], { retryOptions: { maxRetries: 0 } });
const seen = {};
try {
  const sender = client.createSender("orders");
  await sender.sendMessages([1, 2, 3, 4].map((n) => ({ body: { n }, messageId: `m${n}`, applicationProperties: { n } })));
  await sender.close();
  const receiver = client.createReceiver("orders");
  seen.peeked = (await receiver.peekMessages(10)).map((m) => m.body.n);
  const messages = [];
  while (messages.length < 4) {
    messages.push(...(await receiver.receiveMessages(4 - messages.length, { maxWaitTimeInMs: 10000 })));
  }
  seen.received = messages.map((m) => [m.body.n, m.messageId, m.applicationProperties.n, m.deliveryCount]);
  await receiver.completeMessage(messages[0]);
  await receiver.abandonMessage(messages[1], { why: "later" });
  await receiver.deferMessage(messages[2]);
  await receiver.deadLetterMessage(messages[3], { deadLetterReason: "bad", deadLetterErrorDescription: "very" });
  const [again] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10000 });
  seen.again = [again.body.n, again.deliveryCount, again.applicationProperties.why];
  await receiver.completeMessage(again);
  const [deferred] = await receiver.receiveDeferredMessages([messages[2].sequenceNumber]);
  seen.deferred = deferred.body.n;
  await receiver.completeMessage(deferred);
  await receiver.close();
  const dead = client.createReceiver("orders", { subQueueType: "deadLetter" });
  const [letter] = await dead.receiveMessages(1, { maxWaitTimeInMs: 10000 });
  seen.dead = [letter.body.n, letter.deadLetterReason, letter.deadLetterErrorDescription];
  await dead.completeMessage(letter);
  await dead.close();
} finally {
  await client.close();
}
console.log(JSON.stringify(seen));
