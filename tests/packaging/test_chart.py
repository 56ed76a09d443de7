"""The Helm chart: its manifests match the schemas of Kubernetes, and the configurations in them are valid."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.packaging_tools import TOOLS, VERSIONS
from tests.peer.pki import Pki, pki
from tests.promql import rules
from tests.system.router import command

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "packaging/helm/sluice"
MANIFESTS = ROOT / "packaging/kubernetes"
CASES = sorted(file.stem for file in (CHART / "ci").glob("*.yaml"))
#: Cases whose manifests are in the repository.
KEPT = ("network", "one")
NAMESPACE = "messaging"
#: Kinds that the schemas of Kubernetes lack: those of the Prometheus operator.
FOREIGN = "ServiceMonitor,PrometheusRule"
SCHEMAS = TOOLS / "schemas/{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json"

missing = [name for name in ("helm", "kubeconform", "schemas") if not (TOOLS / name).exists()]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)} in build/tools: make packaging-tools"),
]


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOOLS / "helm"), *map(str, words)], capture_output=True, text=True)


def render(case: str, *options: str) -> str:
    """Return the manifests for the values of a case."""
    values = CHART / "ci" / f"{case}.yaml"
    words = ["--namespace", NAMESPACE, "--kube-version", VERSIONS[-1], "--values", str(values), *options]
    rendered = helm("template", "sluice", CHART, *words)
    assert rendered.returncode == 0, rendered.stderr
    return rendered.stdout


def conform(text: str, version: str) -> subprocess.CompletedProcess[str]:
    """Compare manifests with the schemas of a version of Kubernetes."""
    words = ["-strict", "-summary", "-skip", FOREIGN, "-kubernetes-version", version, "-schema-location", str(SCHEMAS)]
    return subprocess.run([str(TOOLS / "kubeconform"), *words], input=text, capture_output=True, text=True)


def objects(text: str, kind: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found and found["kind"] == kind]


def test_chart_has_no_lint() -> None:
    result = helm("lint", "--strict", CHART)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_manifests_match_schemas_of_kubernetes(case: str, version: str) -> None:
    result = conform(render(case), version)
    assert result.returncode == 0, result.stdout
    assert "Errors: 0" in result.stdout


def test_manifest_with_unknown_field_is_refused() -> None:
    text = render("one").replace("readOnlyRootFilesystem", "readOnlyRoot")
    assert "readOnlyRoot" in conform(text, VERSIONS[-1]).stdout


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("case", CASES)
def test_configurations_in_manifests_are_valid(case: str, authority: Pki, tmp_path: Path) -> None:
    """Each configuration is checked with the files that the pod would have."""
    for secret in ("clients", "routers", "broker"):
        folder = tmp_path / "tls" / secret
        folder.mkdir(parents=True)
        for name, source in zip(("tls.crt", "tls.key"), authority.server, strict=True):
            (folder / name).write_bytes(source.read_bytes())
            (folder / name).chmod(0o600)
        (folder / "ca.crt").write_bytes(authority.trusted.read_bytes())
    (tmp_path / "users").mkdir()
    for name in ("users", "people"):
        (tmp_path / "users" / name).write_text("")
    (tmp_path / "policy").mkdir()
    checked = []
    for found in objects(render(case), "ConfigMap"):
        for name, text in found["data"].items():
            folder = tmp_path / "policy" if name.endswith(".json") else tmp_path
            file = folder / name
            file.write_text(text.replace("/etc/sluice/", f"{tmp_path}/"))
            if folder is tmp_path:
                checked.append(str(file))
    environment = {**os.environ, "BROKER_PASSWORD": "secret"}
    result = subprocess.run([*command(), "check", *checked], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr
    assert checked


def test_interior_routers_of_network_connect_to_lower_ordinals() -> None:
    (found,) = [
        each for each in objects(render("network"), "ConfigMap") if each["metadata"]["name"].endswith("interior")
    ]
    neighbours = {name: text.count("role: inter-router\n    host") for name, text in found["data"].items()}
    assert neighbours == {f"sluice-interior-{ordinal}.conf": ordinal for ordinal in range(3)}


def pod(text: str, kind: str) -> dict[str, Any]:
    """Return the specification of the pods of the only object of a kind."""
    (found,) = objects(text, kind)
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_release_without_interior_routers_has_edge_routers_with_uplinks_only() -> None:
    text = render("site")
    assert objects(text, "StatefulSet") == []
    assert [found["metadata"]["name"] for found in objects(text, "Service")] == ["sluice"]
    (found,) = objects(text, "ConfigMap")
    assert [line.split()[1] for line in found["data"]["edge.conf"].splitlines() if " host: " in line] == [
        "a.example",
        "b.example",
    ]


def test_spread_without_selector_counts_pods_of_same_kind() -> None:
    zone, node = pod(render("site"), "Deployment")["topologySpreadConstraints"]
    assert zone["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "edge"
    assert node["labelSelector"] == {"matchLabels": {"team": "shops"}}
    (default,) = pod(render("one"), "StatefulSet")["topologySpreadConstraints"]
    assert default["topologyKey"] == "kubernetes.io/hostname"
    assert "topologySpreadConstraints" not in pod(render("everything"), "StatefulSet")


def test_objects_of_the_cluster_replace_those_of_the_chart() -> None:
    text = render("own")
    assert [found["metadata"]["name"] for found in objects(text, "ConfigMap")] == ["sluice-edge"]
    assert objects(text, "ServiceAccount") == []
    interior = pod(text, "StatefulSet")
    assert interior["volumes"][0] == {"name": "router", "configMap": {"name": "routers"}}
    assert interior["serviceAccountName"] == "messaging"
    assert interior["securityContext"].keys() == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
    for given in (interior, pod(text, "Deployment")):
        (router,) = given["containers"]
        assert "BROKER_PASSWORD" in [each["name"] for each in router["env"]]
        assert "broker" in [each["name"] for each in router["volumeMounts"]]
        assert "broker" in [each["name"] for each in given["volumes"]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("interior.replicas=0", "interior.replicas: 0 needs edge.enabled, and edge.uplinks"),
        ("service.nodePorts.amqp=30672", "service.nodePorts needs service.type NodePort or LoadBalancer"),
        ("service.loadBalancerSourceRanges={192.0.2.0/24}", "service.loadBalancerSourceRanges need service.type"),
    ],
)
def test_value_without_its_condition_is_refused(value: str, reason: str) -> None:
    result = helm("template", "sluice", CHART, "--kube-version", VERSIONS[-1], "--set", value)
    assert result.returncode != 0
    assert reason in result.stderr


def test_alerts_are_those_outside_kubernetes_for_this_release() -> None:
    (found,) = objects(render("everything"), "PrometheusRule")
    rendered = {rule["alert"]: rule for group in found["spec"]["groups"] for rule in group["rules"] if "alert" in rule}
    assert rendered.keys() == rules("alert").keys()
    selected = f'job="bus-metrics", namespace="{NAMESPACE}"'
    for name, rule in rules("alert").items():
        assert rendered[name]["expr"] == rule["expr"].replace('job="sluice"', selected)
        assert "$labels.instance" not in str(rendered[name])
        assert rendered[name]["labels"] == rule["labels"]


@pytest.mark.parametrize(("cpu", "workers"), [("500m", 1), ("2500m", 2), ("3", 3), ("0.5", 1), ("4.0", 4)])
def test_workers_are_whole_cores_of_the_limit(cpu: str, workers: int) -> None:
    text = render("one", "--set-string", f"interior.resources.limits.cpu={cpu}")
    assert f"workerThreads: {workers}\n" in text


@pytest.mark.parametrize(
    "value", ["interior.replica=2", "image.pullPolicy=Sometimes", "interior.replicas=-1", "log.enable=loud"]
)
def test_invalid_value_is_refused(value: str) -> None:
    result = helm("template", "sluice", CHART, "--kube-version", VERSIONS[-1], "--set", value)
    assert result.returncode != 0
    assert "values don't meet the specifications of the schema" in result.stderr


@pytest.mark.parametrize("case", KEPT)
def test_plain_manifests_are_those_of_the_chart(case: str) -> None:
    assert (MANIFESTS / f"{case}.yaml").read_text() == render(case), "run `make chart-manifests`"
