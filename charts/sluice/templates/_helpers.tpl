{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains "sluice" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-sluice" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sluice.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "sluice.fullname" .) }}
{{- else -}}
{{ required "serviceAccount.name must be set when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- /* An image reference: by digest where there is one. Takes (list image defaultTag). */ -}}
{{- define "sluice.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default (index . 1)) }}
{{- end -}}
{{- end -}}

{{- /* What the operator does with the resource and its children, wherever it looks after them. */ -}}
{{- define "sluice.rules" -}}
# The resource is the user's: read it, and write nothing but its status.
- apiGroups: [sluice.dev]
  resources: [llmdeployments]
  verbs: [get, list, watch]
- apiGroups: [sluice.dev]
  resources: [llmdeployments/status]
  verbs: [get, patch, update]
# Children, by server-side apply: patch, and create for the first time. The garbage collector deletes them.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch]
# Pods are the Deployment's: patch sets the annotation that orders scale-in, delete hurries one that keeps crashing.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
# The admin token is made once and read back by its name: no list, no watch, no change.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
