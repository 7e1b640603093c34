"""Where messages are kept, behind one small interface.

| module | what it holds |
|---|---|
| `engine` | the interface |
| `memory` | everything in RAM; for amnesia and as the plainest engine |
| `sqlite` | one file, WAL, one writer; `schema` has its tables and statements, `wal` the check before recovery |
"""
