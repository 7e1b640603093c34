"""Where objects are kept.

| module | what it holds |
|---|---|
| `engine` | the engine: where a small object is, and what a commit does with it |
| `packs` | small objects, many in a file that only grows |
| `pack_scan` | reads a pack at the start and tells a torn end from damage |
| `repair` | checks the files of a node that is not running, and makes new packs of what can be read |
| `objects` | large objects, each in a file of its own |
| `disk` | the files they write, and the real ones |
| `ram` | files in memory |
"""
