"""Where messages are kept, behind one small interface.

| module | what it holds |
|---|---|
| `engine` | the interface: `Engine` writes, `EngineReads` reads; the values they exchange |
| `thread` | where engine calls run |
| `memory` | everything in RAM, for amnesia; the plainest engine |
| `sqlite` | one file in WAL mode: the writing connection, commits, checkpoints, a full disk |
| `sqlite_reads` | its reading connection |
| `log_copier` | copies the log beside the commits, on connections of its own |
| `schema` | its tables and statements |
| `opening` | how the file is opened and counted |
| `reserve` | the room that is held back for settlements on a full disk |
| `files` | whether the files are what the last life left there: the record, the marks, `examine` |
| `file_guard` | watches over the files of one open mailbox |
| `wal` | reads the log before SQLite recovers it, and keeps it ready for use |
| `pages` | reads pages and log frames without SQLite |
| `inspection` | looks for damage in the background |
| `repair` | makes a new file of what can still be read |
"""
