{{/* Configuration of a router. Arguments: root, mode, given (values of this kind of router), id, ordinal. */}}
{{- define "sluice.configuration" -}}
{{- $values := .root.Values -}}
{{- $routersTls := $values.tls.routers.secretName -}}
router {
    mode: {{ .mode }}
{{- with .id }}
    id: {{ . }}
{{- end }}
    workerThreads: {{ include "sluice.workers" .given }}
    maxBufferedMegabytes: {{ .given.maxBufferedMegabytes | int }}
    shutdownGraceSeconds: {{ max 0 (sub (sub $values.shutdown.gracePeriodSeconds $values.shutdown.drainSeconds) 5) }}
    watchConfiguration: yes
{{- if eq .mode "edge" }}
    readyWithoutUplink: no
{{- end }}
}

log {
    module: DEFAULT
    enable: {{ $values.log.enable }}
    outputFile: stderr
}

listener {
    name: web
    port: 8888
    http: yes
    websockets: no
}
{{ if $values.users.secretName }}
saslUsers {
    name: users
    file: /etc/sluice/users/{{ $values.users.key }}
}
{{ end }}
{{- with $values.tls.clients }}
{{- if .secretName }}
sslProfile {
    name: clients
    certFile: /etc/sluice/tls/clients/tls.crt
    privateKeyFile: /etc/sluice/tls/clients/tls.key
{{- if .clientCertificates }}
    caCertFile: /etc/sluice/tls/clients/ca.crt
{{- end }}
}

listener {
    name: amqps
    port: 5671
    sslProfile: clients
    requireSsl: yes
{{- include "sluice.clients" (dict "root" $.root "tls" true) }}
}
{{ end }}
{{- end }}
{{- if or (not $values.tls.clients.secretName) $values.tls.clients.allowPlain }}
listener {
    name: amqp
    port: 5672
{{- include "sluice.clients" (dict "root" .root "tls" false) }}
}
{{ end }}
{{- if $routersTls }}
sslProfile {
    name: routers
    certFile: /etc/sluice/tls/routers/tls.crt
    privateKeyFile: /etc/sluice/tls/routers/tls.key
    caCertFile: /etc/sluice/tls/routers/ca.crt
}
{{ end }}
{{- if eq .mode "interior" }}
{{- range $role, $port := dict "inter-router" 55672 "edge" 45672 }}
listener {
    name: {{ $role }}
    port: {{ $port }}
    role: {{ $role }}
{{- include "sluice.routerAuthentication" $ }}
}
{{ end }}
{{- range $other := until (.ordinal | int) }}
connector {
    name: interior-{{ $other }}
    role: inter-router
    host: {{ include "sluice.interiorHost" (dict "root" $.root "ordinal" $other) }}
    port: 55672
{{- if $routersTls }}
    sslProfile: routers
    saslMechanisms: EXTERNAL
{{- else }}
    saslMechanisms: ANONYMOUS
{{- end }}
}
{{ end }}
{{- else }}
{{- $own := printf "%s-uplink.%s.svc.%s" (include "sluice.fullname" .root) .root.Release.Namespace $values.clusterDomain }}
{{- $uplinks := .given.uplinks | default (list (dict "host" $own)) }}
{{- range $number, $uplink := $uplinks }}
connector {
    name: interior{{ if gt (len $uplinks) 1 }}-{{ $number }}{{ end }}
    role: edge
    host: {{ $uplink.host }}
    port: {{ $uplink.port | default 45672 | int }}
{{- if $routersTls }}
    sslProfile: routers
    saslMechanisms: EXTERNAL
{{- else }}
    saslMechanisms: ANONYMOUS
{{- end }}
}
{{ end }}
{{- end }}
{{- if $values.policy.enabled }}
policy {
    enableVhostPolicy: yes
    policyDir: /etc/sluice/policy
}
{{ end }}
{{- with $values.config }}
{{ . | trim }}
{{ end }}
{{- with .given.config }}
{{ . | trim }}
{{ end }}
{{- end }}

{{/* Attributes of a listener for clients. Without TLS (`tls`), there are no certificates for EXTERNAL. */}}
{{- define "sluice.clients" -}}
{{- $values := .root.Values }}
{{- $mechanisms := $values.clients.saslMechanisms }}
{{- if not .tls }}
{{- $mechanisms = without (splitList " " $mechanisms) "EXTERNAL" | join " " }}
{{- end }}
{{- with $mechanisms }}
    saslMechanisms: {{ . }}
{{- end }}
    authenticatePeer: {{ ternary "yes" "no" $values.clients.authenticatePeer }}
    idleTimeoutSeconds: {{ $values.clients.idleTimeoutSeconds | int }}
{{- if $values.users.secretName }}
    saslUsers: users
{{- end }}
{{- range $name, $value := $values.clients.attributes }}
    {{ $name }}: {{ $value }}
{{- end }}
{{- end }}

{{/* Attributes of a listener for routers. */}}
{{- define "sluice.routerAuthentication" -}}
{{- $tls := .root.Values.tls.routers }}
{{- if $tls.secretName }}
    sslProfile: routers
    requireSsl: yes
    saslMechanisms: EXTERNAL
    authenticatePeer: yes
{{- with $tls.allowedRouters }}
    allowedRouters: {{ . }}
{{- end }}
{{- else }}
    saslMechanisms: ANONYMOUS
    authenticatePeer: no
{{- end }}
{{- end }}

{{/* Template of a pod. Arguments: root, kind (interior or edge), given (values of this kind of router), file. */}}
{{- define "sluice.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "sluice.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .kind }}
    {{- with .given.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # These attributes take effect only when a router starts.
    sluice/restart: {{ printf "%s workers, %v MB" (include "sluice.workers" .given) .given.maxBufferedMegabytes | quote }}
    {{- with .given.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $values.serviceAccount.name | default (include "sluice.fullname" .root) }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $values.shutdown.gracePeriodSeconds | int }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with .given.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .given.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .given.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $constraints := .given.topologySpreadConstraints }}
  {{- if not (or $constraints .given.affinity) }}
  {{- $node := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
  {{- $constraints = list $node }}
  {{- end }}
  {{- if $constraints }}
  {{- $labels := include "sluice.selector" .root | fromYaml | merge (dict "app.kubernetes.io/component" .kind) }}
  topologySpreadConstraints:
    {{- range $constraints }}
    - {{ merge (deepCopy .) (dict "labelSelector" (.labelSelector | default (dict "matchLabels" $labels))) | toYaml | nindent 6 | trim }}
    {{- end }}
  {{- end }}
  containers:
    - name: router
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [run, -c, {{ printf "/etc/sluice/router/%s" .file | quote }}]
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        {{- if $values.tls.clients.secretName }}
        - {name: amqps, containerPort: 5671}
        {{- end }}
        {{- if or (not $values.tls.clients.secretName) $values.tls.clients.allowPlain }}
        - {name: amqp, containerPort: 5672}
        {{- end }}
        {{- if eq .kind "interior" }}
        - {name: inter-router, containerPort: 55672}
        - {name: edge, containerPort: 45672}
        {{- end }}
        - {name: web, containerPort: 8888}
      startupProbe:
        httpGet: {path: /livez, port: web}
        periodSeconds: 1
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /livez, port: web}
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: web}
        periodSeconds: 2
        timeoutSeconds: 2
      lifecycle:
        preStop:
          sleep: {seconds: {{ $values.shutdown.drainSeconds | int }}}
      resources: {{- toYaml .given.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        # A folder, not a subPath: files of a subPath never change.
        - {name: router, mountPath: /etc/sluice/router, readOnly: true}
        {{- if $values.policy.enabled }}
        - {name: policy, mountPath: /etc/sluice/policy, readOnly: true}
        {{- end }}
        {{- if $values.users.secretName }}
        - {name: users, mountPath: /etc/sluice/users, readOnly: true}
        {{- end }}
        {{- if $values.tls.clients.secretName }}
        - {name: tls-clients, mountPath: /etc/sluice/tls/clients, readOnly: true}
        {{- end }}
        {{- if $values.tls.routers.secretName }}
        - {name: tls-routers, mountPath: /etc/sluice/tls/routers, readOnly: true}
        {{- end }}
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: router
      configMap: {name: {{ .given.existingConfigMap | default (printf "%s-%s" (include "sluice.fullname" .root) .kind) }}}
    {{- if $values.policy.enabled }}
    - name: policy
      configMap: {name: {{ include "sluice.fullname" .root }}-policy}
    {{- end }}
    {{- if $values.users.secretName }}
    - name: users
      secret: {secretName: {{ $values.users.secretName }}, defaultMode: 0440}
    {{- end }}
    {{- if $values.tls.clients.secretName }}
    - name: tls-clients
      secret: {secretName: {{ $values.tls.clients.secretName }}, defaultMode: 0440}
    {{- end }}
    {{- if $values.tls.routers.secretName }}
    - name: tls-routers
      secret: {secretName: {{ $values.tls.routers.secretName }}, defaultMode: 0440}
    {{- end }}
    # Sockets of the router's processes. Shared memory of the workers needs no file system, and counts as their memory.
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 16Mi}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
