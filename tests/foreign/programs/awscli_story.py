"""The AWS command line: make, send, receive, delete."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def aws(*words):
    """Run a command and read its JSON."""
    command = [sys.executable, "-m", "awscli", "--endpoint-url", os.environ["AWS_ENDPOINT_URL_SQS"], "sqs", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout) if done.stdout.strip() else {}


url = aws("create-queue", "--queue-name", "shell")["QueueUrl"]
sent = aws("send-message", "--queue-url", url, "--message-body", "from the shell")
(message,) = aws("receive-message", "--queue-url", url, "--wait-time-seconds", "5")["Messages"]
assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "from the shell")
aws("delete-message", "--queue-url", url, "--receipt-handle", message["ReceiptHandle"])
aws("delete-queue", "--queue-url", url)
print("awscli: a queue made, a message sent, received and deleted")
