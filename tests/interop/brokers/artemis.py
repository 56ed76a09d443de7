"""ActiveMQ Artemis from Maven Central: creates queues on attach, has selectors and transactions, stores messages."""

from __future__ import annotations

import os
import shutil

from tests.interop.brokers.process import TOOLS, BrokerProcess, BrokerUnavailable, require

BOOTSTRAP = """\
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="guests"/>
  <server configuration="file:{etc}/broker.xml"/>
</broker>
"""
MANAGEMENT = """\
<management-context xmlns="http://activemq.apache.org/schema">
  <authorisation>
    <default-access><access method="list*" roles="guest"/></default-access>
    <role-access>
      <match domain="org.apache.activemq.artemis"><access method="list*" roles="guest"/></match>
    </role-access>
  </authorisation>
</management-context>
"""
LOGIN = """\
guests {{
  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
    org.apache.activemq.jaas.guest.user="guest" org.apache.activemq.jaas.guest.role="guest";
}};
"""
LOGGING = """\
rootLogger = WARN, console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5level %msg%n
"""
BROKER = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>false</security-enabled>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-directory>{data}/journal</journal-directory>
    <bindings-directory>{data}/bindings</bindings-directory>
    <large-messages-directory>{data}/large</large-messages-directory>
    <paging-directory>{data}/paging</paging-directory>
    <journal-file-size>1M</journal-file-size>
    <journal-min-files>2</journal-min-files>
    <max-disk-usage>100</max-disk-usage>
    <global-max-size>64M</global-max-size>
    <acceptors>
      <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;saslMechanisms=ANONYMOUS,PLAIN</acceptor>
    </acceptors>
    <address-settings>
      <address-setting match="#">
        <default-address-routing-type>ANYCAST</default-address-routing-type>
        <default-queue-routing-type>ANYCAST</default-queue-routing-type>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
        <max-delivery-attempts>-1</max-delivery-attempts>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""


class Artemis(BrokerProcess):
    """Artemis process without access control. Addresses are the names of queues."""

    name = "Artemis"
    user = "guest"
    password = "guest"

    def prepare(self) -> None:
        """See the base class."""
        java = shutil.which("java")
        if java is None:
            raise BrokerUnavailable("no Java on the path")
        self._java = java
        home = require(TOOLS / "java" / "artemis", "java")
        self._home = next(home.glob("apache-artemis-*"))
        etc = self.directory / "etc"
        etc.mkdir(exist_ok=True)
        values = {"etc": etc, "data": self.directory / "data", "port": self.port, "name": f"broker-{self.port}"}
        for name, text in (("bootstrap.xml", BOOTSTRAP), ("broker.xml", BROKER), ("login.config", LOGIN)):
            (etc / name).write_text(text.format(**values))
        (etc / "management.xml").write_text(MANAGEMENT)
        (etc / "log4j2.properties").write_text(LOGGING)

    def command(self) -> list[str]:
        """See the base class."""
        settings = {
            "artemis.home": self._home,
            "artemis.instance": self.directory,
            "artemis.instance.etc": self.directory / "etc",
            "data.dir": self.directory / "data",
            "java.security.auth.login.config": self.directory / "etc" / "login.config",
            "log4j2.configurationFile": f"file:{self.directory}/etc/log4j2.properties",
            "java.io.tmpdir": self.directory,
        }
        words = [self._java, "-Xms32M", "-Xmx192M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        words += [f"-D{name}={value}" for name, value in settings.items()]
        words += ["-cp", str(self._home / "lib" / "artemis-boot.jar")]
        return [*words, "org.apache.activemq.artemis.boot.Artemis", "run"]

    def environment(self) -> dict[str, str]:
        """See the base class."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory)}
