"""Outages on command: what fails, where, and until when; how it is done to a connection; and scripts of them."""
