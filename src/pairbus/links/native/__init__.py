"""The native AMQP client: the codec of :mod:`pairbus.amqp` on asyncio, with the exception types of the SDK.

``endpoint`` says where a namespace is and how one proves who one is, ``wire`` carries bytes, ``connection`` is one
connection with its tokens, ``sending``, ``receiving`` and ``requests`` are its links, ``client`` keeps them open, and
``transport`` is what the mover uses.
"""
