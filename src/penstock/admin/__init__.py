"""The admin listener: node health, metrics, the live inventory, the operator's page and the operator's actions.

service           the only wiring: child specs in start order
routes            the routes of the listener
authority         who may look and act: the operator token, or a session made from it
sessions          sessions of the operator's page: short-lived, kept in RAM
actions           what the operator may do from the page
page              the operator's page and its stream of snapshots
assets            the page's files, named by their content; they lie in `static/`
docs_page         the API pages under `/docs`
passage           the API of every service, for the page, with its session instead of a capability
history           an hour of figures in RAM, bounded
readings          what the node measures once a second
sampler           the child that measures, and the route of the history
log_tail          the last lines of the log
concern           what an operator should know at once, and the verdict it makes
own_concerns      the concerns of the node itself
docs_example      an example value for a JSON schema
publisher         makes one snapshot a second for all viewers
view              one view of the page: its snapshot as values
drawing           from panels to the values that the page draws
panel             one section of the page as data
node_panels       the panels about the node itself
event_tail        the last events of the node
exposition        metrics in Prometheus' text format
process_metrics   what the process uses, in the same format
scrapes           how often an address may read the metrics without the operator token
metrics_listener  a listener that serves /metrics alone
"""
