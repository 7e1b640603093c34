"""From the settings of a table to the options of its listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.net.server.listener_options import ListenerOptions

if TYPE_CHECKING:
    from penstock.config import ListenerSettings


def listener_options(settings: ListenerSettings) -> ListenerOptions:
    """Translate; an empty list of user ids admits the node's own user."""
    return ListenerOptions(
        host=settings.host,
        port=settings.port,
        uds_path=settings.uds_path,
        uds_allow_uids=frozenset(settings.uds_allow_uids) or None,
        max_conns=settings.max_conns,
        max_conns_per_ip=settings.max_conns_per_ip,
        read_timeout_s=settings.read_timeout_s,
        write_timeout_s=settings.write_timeout_s,
        idle_timeout_s=settings.idle_timeout_s,
        request_deadline_s=settings.request_deadline_s,
        body_bytes_max=settings.body_bytes_max,
        decompress_ratio_cap=settings.decompress_ratio_cap,
        tls_cert_path=settings.tls_cert_path,
        tls_key_path=settings.tls_key_path,
        allowed_hosts=settings.allowed_hosts,
    )
