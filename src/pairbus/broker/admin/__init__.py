"""The administration of a namespace: the management REST API of Service Bus, ATOM and XML over HTTP."""
