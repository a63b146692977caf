"""The synchronous client: a façade over the asynchronous one."""
