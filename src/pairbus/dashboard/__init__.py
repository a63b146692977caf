"""The web page of an operator: what a pairing does, from its ledger and from the administration of both namespaces.

What the page shows is pure: :mod:`~pairbus.dashboard.health`, :mod:`~pairbus.dashboard.account` and
:mod:`~pairbus.dashboard.view` are told records, looks at a namespace and the time. :mod:`~pairbus.dashboard.follow`,
:mod:`~pairbus.dashboard.look` and :mod:`~pairbus.dashboard.faults` fetch them, :mod:`~pairbus.dashboard.drawing` and
:mod:`~pairbus.dashboard.words` write them down, and :mod:`~pairbus.dashboard.page` puts them on a page.
"""
