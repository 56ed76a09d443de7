{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- end }}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Number of workers: given, or the whole cores of limits.cpu, at least one. Argument: interior or edge. */}}
{{- define "sluice.workers" -}}
{{- $cpu := dig "limits" "cpu" "1" .resources | toString }}
{{- if .workers }}{{ .workers }}
{{- else if hasSuffix "m" $cpu }}{{ max 1 (div (trimSuffix "m" $cpu | int) 1000) }}
{{- else }}{{ max 1 (floor (float64 $cpu) | int) }}{{ end }}
{{- end }}

{{- define "sluice.interiorHost" -}}
{{- $name := include "sluice.fullname" .root -}}
{{ $name }}-interior-{{ .ordinal }}.{{ $name }}-interior.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}
