"""Capabilities: tokens that anyone can verify, any holder can narrow offline, and a raised epoch revokes.

| module | what it holds |
|---|---|
| `families` | the closed set of caveats: names, types, written form |
| `caveats` | one caveat as a value, read from text and from the token |
| `judging` | caveats against a request, ready to run many times |
| `covers` | may this token hand out that one: one pure function |
| `ed25519` | libsodium's rules for keys and signatures; `hybrid` adds ML-DSA-65 |
| `token` | the exact bytes: envelope, root, blocks, chain values, signing inputs |
| `making` | mint, attenuate, seal |
| `floors` | what was revoked: floors by level, and ids |
| `trust` | the keys and floors a verifier believes, and until when |
| `attesting` | the issuer's word for the head of a hash chain |
| `metering` | budgets and rates |
| `verifier` | the one verifier of the code base |
| `judged_token`, `proving` | a token judged before a request is looked at, and the signatures left to check |
| `explaining` | what a token is good for, in words and offline |
| `relayed` | a call that the gateway has judged and charged |
| `config` | the `[capability]` table |
| `following` | keeps a verifier's trust fresh: a feed, or a file; `rpc.issuer` finds the source |
"""
