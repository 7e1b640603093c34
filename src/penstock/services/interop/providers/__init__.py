"""Who sent this webhook: one small check for each kind of sender; pure.

| module | what it holds |
|---|---|
| `verdict` | what a check is given and what it answers; `verify`, which never raises |
| `setup` | the part of an endpoint's settings that the check depends on |
| `decoding` | strict reading of hex, base64 and times |
| `hmac_key` | a secret prepared for HMAC; the comparison of signatures |
| `claims` | what makes two deliveries the same event |
| `pointers` | values out of a delivery by pointer or field name; the `claim` setting |
| `kinds` | the twelve kinds by name |
| `signed_body` | github, gitea, shopify |
| `slack` | slack_webhook |
| `stripe` | stripe |
| `standard_webhooks` | standard_webhooks, svix |
| `twilio` | twilio |
| `discord` | discord |
| `gitlab` | gitlab, with a plain token or a signing token |
| `linear` | linear |
| `custom_hmac` | hmac: the scheme is in the settings |
"""
