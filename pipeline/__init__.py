"""The data pipeline: messages of addresses to tables of Spark and back.

Optional: `pip install 'sluice-router[pipeline]'`. The router never imports it; it imports of the router what
a client needs.
"""
