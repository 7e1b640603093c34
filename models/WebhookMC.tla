----------------------------- MODULE WebhookMC -----------------------------
(* The bounds under which TLC looks at Webhook.                             *)
EXTENDS Webhook
=============================================================================
