"""The admin listener: node health, metrics, the live inventory, the operator's page, and the few things an operator may do.

| module | what it holds |
|---|---|
| `exposition` | the kernel's plain integers in Prometheus' text format |
| `authority`, `sessions` | who may look and act: the operator token, or a session made from it |
| `page`, `assets`, `docs_page` | what a browser asks for; the files lie in `static/` |
| `publisher` | one snapshot a second for everybody who looks |
| `panel`, `node_panels`, `event_tail` | what the page shows, as data |
| `routes` | what can be asked for |
| `service` | the wiring |
"""
