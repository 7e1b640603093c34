"""Task frameworks on penstock's mailbox: import the module of the one you use; each needs its extra.

| module | what it holds |
|---|---|
| `kombu` | the kombu transport behind Celery's `penstock://`; extra `penstock[celery]` |
| `dramatiq` | a Dramatiq broker; extra `penstock[dramatiq]` |
| `topics` | names of queues as topics |
| `leases` | messages that are held, and the client of this process |
"""
