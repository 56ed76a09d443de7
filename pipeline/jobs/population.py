"""Number of connections that users have open at once."""

from dataclasses import dataclass

from pipeline.telemetry.reader import TelemetryTables

_NORMAL = "normal"


@dataclass(frozen=True)
class ConnectionPeak:
    """Peak of one user of a vhost at a router."""

    router: str
    vhost: str
    user: str
    connections: int  # most that were open at once in the period


def peaks(telemetry: TelemetryTables) -> list[ConnectionPeak]:
    """Return the peaks of authenticated users, the highest first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    connection = ("router", "boot_id", "connection_id")
    opened = (
        telemetry.table("dim_connection")
        .where((f.col("role") == _NORMAL) & f.col("user").isNotNull() & (f.col("user") != "anonymous"))
        .groupBy(*connection)
        .agg(f.first("vhost").alias("vhost"), f.first("user").alias("user"), f.min("valid_from").alias("at"))
    )
    closed = (
        telemetry.table("event", earlier=True)
        .where("kind = 'connection close'")
        .select("router", "boot_id", f.col("subject").cast("long").alias("connection_id"), f.col("ts").alias("at"))
        .join(opened.drop("at"), list(connection))
    )
    # Connections opened before the period count from its beginning.
    at = f.greatest("at", f.lit(telemetry.start)).alias("at")
    user = ("router", "boot_id", "vhost", "user")
    changes = opened.select(*user, at, f.lit(1).alias("change")).unionByName(
        closed.select(*user, at, f.lit(-1).alias("change"))
    )
    window = Window.partitionBy(*user).orderBy("at")
    rows = (
        changes.groupBy(*user, "at")
        .agg(f.sum("change").alias("change"))
        .withColumn("open", f.sum("change").over(window))
        .groupBy("router", f.coalesce("vhost", f.lit("")).alias("vhost"), "user")
        .agg(f.max("open").alias("open"))
        .orderBy(f.desc("open"), "router", "vhost", "user")
    )
    return [ConnectionPeak(*row) for row in rows.collect()]


def limits(telemetry: TelemetryTables) -> dict[tuple[str, str], int]:
    """Return the latest `maxConnectionsPerUser`, by router and vhost."""
    from pyspark.sql import functions as f

    limit = f.col("limits")["maxConnectionsPerUser"].cast("int")
    rows = telemetry.table("dim_policy").where(limit.isNotNull())
    rows = rows.groupBy("router", "vhost").agg(f.max_by(limit, "valid_from"))
    return {(router, vhost): value for router, vhost, value in rows.collect()}
