"""The children of omnigate beside its listener.

housekeeping              trims what is stale and samples the gauges, four times a second
passport_cache_refresher  proves known tokens again before they lapse
prober                    asks services that failed whether they are back
readiness                 sheds writes first, and serves reads as long as possible
workers                   the pool in which admitted requests run
"""
