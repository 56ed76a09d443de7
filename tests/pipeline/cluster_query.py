"""Program for spark-submit: `cluster_query.py LANDING CHECKPOINT TABLE` writes all available messages to a table.

Its last line of output is the path from which the executors import `pipeline`.
"""

import sys

from pyspark.sql import SparkSession


def import_path(batches):
    import pyarrow as pa

    import sluice.pipeline.decode

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [sluice.pipeline.decode.__file__]})


if __name__ == "__main__":
    landing, checkpoint, table = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    query = (
        spark.readStream.format("amqp")
        .option("maxRecordsPerTrigger", "1")
        .load(landing)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    places = spark.range(2).mapInArrow(import_path, "place string").distinct().collect()
    print("places:", *(row.place for row in places))
    spark.stop()
