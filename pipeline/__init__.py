"""Data pipeline between AMQP addresses and Spark tables, in both directions.

Optional: `pip install 'sluice-router[pipeline]'`. The router never imports the pipeline. The pipeline imports the
client modules of the router.
"""
