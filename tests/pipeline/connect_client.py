"""Program of a client of Spark Connect: `connect_client.py REMOTE LANDING FOLDER URL`.

It needs pyspark and grpcio, and nothing of this repository. Its last line of output is JSON with its results.
"""

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if __name__ == "__main__":
    remote, landing, folder, url = sys.argv[1:]
    spark = SparkSession.builder.remote(remote).getOrCreate()
    result = {"session": type(spark).__module__, "sluice": "sluice" in sys.modules}
    result["read"] = spark.read.format("amqp").load(landing).count()
    query = (
        spark.readStream.format("amqp")
        .option("maxRecordsPerTrigger", "10")
        .load(landing)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/table")
    )
    query.awaitTermination()
    result["streamed"] = spark.read.parquet(f"{folder}/table").count()
    spark.sql(f"CREATE TABLE landed USING amqp OPTIONS (path '{landing}')")
    result["table"] = spark.sql(f"SELECT count(*) AS rows FROM landed WITH (path '{landing}')").collect()[0].rows
    sink = {"amqp.url": url, "address": "from-connect"}
    rows = spark.range(20).selectExpr("cast(id AS string) AS body")
    rows.write.format("amqp").mode("append").options(**sink).save()
    sending = (
        spark.readStream.format("amqp")
        .load(landing)
        .selectExpr("string(body) AS body")
        .writeStream.format("amqp")
        .options(**sink)
        .option("checkpointLocation", f"{folder}/checkpoint-of-sink")
        .trigger(availableNow=True)
        .start()
    )
    sending.awaitTermination()
    try:
        spark.read.format("amqp").option("decode", "xml").load(landing).count()
    except PySparkException as error:
        result["error"] = str(error)
    print(json.dumps(result))
    spark.stop()
