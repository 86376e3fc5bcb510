{{- define "cloud-bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's unless it is in it. */}}
{{- define "cloud-bridge.fullname" -}}
{{- $name := include "cloud-bridge.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "cloud-bridge.serviceAccount" -}}
{{- default (include "cloud-bridge.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "cloud-bridge.selector" -}}
app.kubernetes.io/name: {{ include "cloud-bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cloud-bridge.labels" -}}
{{ include "cloud-bridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "cloud-bridge.image" -}}
{{- if not .Values.image.repository }}{{ fail "set image.repository to where you have pushed the image, as in --set image.repository=registry.example.com/cloud-bridge" }}{{ end }}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}
