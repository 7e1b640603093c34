"""svc-passport: issues, judges and revokes capability tokens.

| module | what it holds |
|---|---|
| `config` | the `[passport]` table and the options read from it |
| `core` | what may be issued, and what a revocation changes; pure |
| `policy` | the issuer policy as a signed, version-monotone descriptor; pure |
| `state`, `store` | what outlives the process, and where it is kept |
| `recovery` | what a start compares before it believes a state; pure |
| `audit`, `audit_writer`, `audit_signer` | the hash-chained record of what was done, its writer, its head's signer |
| `issued` | the list of what was issued, read from the audit |
| `kms`, `kms_local`, `kms_pkcs11` | where the signing keys are, behind one contract with a deadline and a breaker |
| `book` | the issuer's state while it runs: keys, floors, policy and operator, swapped in one step |
| `issuance`, `revocation`, `registry`, `background` | the agents: one job each |
| `api`, `routes`, `service` | the contract, HTTP, and the only wiring |
"""
