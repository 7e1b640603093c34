"""Where messages are kept, behind one small interface.

| module | what it holds |
|---|---|
| `engine` | the interface: `Engine` writes, `EngineReads` reads; the values they exchange |
| `thread` | where engine calls run |
| `memory` | everything in RAM, for amnesia; the plainest engine |
| `sqlite` | one file in WAL mode: the writing connection, commits, checkpoints, a full disk |
| `sqlite_reads` | its reading connection |
| `schema` | its tables and statements |
| `opening` | how the file is opened and counted |
| `reserve` | the room that is held back for settlements on a full disk |
| `wal` | the check of the log before SQLite recovers it |
| `pages` | reads pages and log frames without SQLite |
| `inspection` | looks for damage in the background |
| `repair` | makes a new file of what can still be read |
"""
