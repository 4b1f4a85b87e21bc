{{- define "sluice.fullname" -}}
{{- $name := .Values.fullnameOverride | default (contains "sluice" .Release.Name | ternary .Release.Name (printf "%s-sluice" .Release.Name)) -}}
{{- $name = $name | trunc 40 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%q cannot begin the names of Services, which are lower-case letters, digits and -, a letter first: choose another release name, or set fullnameOverride." $name) -}}
{{- end -}}
{{ $name }}
{{- end -}}

{{- /* Labels of the user and ours. The user's go first, but not before those that select. Argument: (list ours theirs selector) */ -}}
{{- define "sluice.withLabels" -}}
{{- mergeOverwrite (index . 0 | fromYaml) (index . 1 | default dict) (index . 2 | fromYaml) | toYaml -}}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sluice.gateway.selector" -}}
app.kubernetes.io/name: sluice-gateway
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "sluice.gateway.labels" -}}
{{ include "sluice.gateway.selector" . }}
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

{{- /* JSON list of the managed namespaces; empty: all. */ -}}
{{- define "sluice.namespaces" -}}
{{- concat (compact (list .Values.watchNamespace)) (.Values.watchNamespaces | default list) | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- /* Fixed or Cluster: who sets the user and group ids of pods. */ -}}
{{- define "sluice.podIds" -}}
{{- if eq .Values.podIds "Auto" -}}
{{ .Capabilities.APIVersions.Has "security.openshift.io/v1" | ternary "Cluster" "Fixed" }}
{{- else -}}
{{ .Values.podIds }}
{{- end -}}
{{- end -}}

{{- /* JSON: accelerator resource → image reference. */ -}}
{{- define "sluice.acceleratorImages" -}}
{{- $images := dict -}}
{{- range $resource, $image := .Values.engine.acceleratorImages -}}
{{- if $image -}}
{{- $_ := set $images $resource (include "sluice.image" (list $image ($.Values.engine.image.tag | default $.Chart.AppVersion))) -}}
{{- end -}}
{{- end -}}
{{ $images | toJson }}
{{- end -}}

{{- /* An image reference, by digest if one is set. Argument: (list image defaultTag). */ -}}
{{- define "sluice.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default (index . 1)) }}
{{- end -}}
{{- end -}}

{{- /* Permissions of the operator for the resource and its children, in each managed namespace. */ -}}
{{- define "sluice.rules" -}}
# The user owns the resource: the operator reads it and writes only its status.
- apiGroups: [sluice.dev]
  resources: [llmdeployments]
  verbs: [get, list, watch]
- apiGroups: [sluice.dev]
  resources: [llmdeployments/status]
  verbs: [patch]
# Children are written by server-side apply: patch, and create for new ones. The garbage collector deletes them. Delete:
# the Deployment and the Service of a canary revision end with its trial.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# A pod belongs to the resource if a ReplicaSet of its Deployment controls it, whatever the pod's labels are.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch]
# Watches, restricted to the engines' labels, show a change by another writer without a request per pass.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# Delete: networkPolicy.enabled may become false.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# Where the Prometheus Operator is installed. Delete: metrics.monitors.enabled may become false.
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, create, patch, delete]
# The Deployment owns the pods: patch sets the annotation that orders scale-in, delete replaces a crash-looping pod.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
# The admin token of each resource derives from the operator's key, so no Secret in a model's namespace is read. The watch
# of ConfigMaps shows the deletion of one: the garbage collector deletes with it a ConfigMap that it owns.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{- /* The operator's and the gateway's pods of this release, as peers of a NetworkPolicy. */ -}}
{{- define "sluice.operator.peer" -}}
namespaceSelector:
  matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace | quote }}}
podSelector:
  matchLabels:
    {{- include "sluice.selector" . | nindent 4 }}
{{- end -}}

{{- define "sluice.gateway.peer" -}}
namespaceSelector:
  matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace | quote }}}
podSelector:
  matchLabels:
    {{- include "sluice.gateway.selector" . | nindent 4 }}
{{- end -}}

{{- /* JSON of the peers of engine pods, for the operator, which makes one NetworkPolicy per LLMDeployment. */ -}}
{{- define "sluice.networkPeers" -}}
{{- $operator := list (include "sluice.operator.peer" . | fromYaml) -}}
{{- $gateway := .Values.gateway.enabled | ternary (list (include "sluice.gateway.peer" . | fromYaml)) list -}}
{{- $clients := .Values.networkPolicy.namespaceClients -}}
{{- if eq $clients "Auto" -}}
{{- $clients = .Values.gateway.enabled | ternary "TLS" "Always" -}}
{{- end -}}
{{- $egress := dict -}}
{{- with .Values.networkPolicy.egress -}}
{{- if .enabled -}}
{{- $_ := set $egress "egress" (dict "dns" .dnsTo "sources" .sourcesTo "telemetry" .telemetryTo) -}}
{{- end -}}
{{- end -}}
{{- dict "admin" (concat $operator $gateway .Values.networkPolicy.metricsFrom) "data" (concat $gateway .Values.networkPolicy.clientsFrom | default list) "namespaceClients" $clients "egress" (get $egress "egress" | default nil) | toJson -}}
{{- end -}}

{{- /* Egress rules of operator and gateway: DNS, the API server and what else an argument names. Argument: (list root targets),
targets: JSON objects with the peers under "to" (empty: everywhere but link-local addresses) and "ports". */ -}}
{{- define "sluice.egress" -}}
{{- $root := index . 0 -}}
{{- $egress := $root.Values.networkPolicy.egress -}}
{{- $any := list (dict "namespaceSelector" dict) (dict "ipBlock" (dict "cidr" "0.0.0.0/0" "except" (list "169.254.0.0/16"))) (dict "ipBlock" (dict "cidr" "::/0" "except" (list "fe80::/10" "fd00:ec2::254/128"))) -}}
- ports: # DNS, also behind a Service that translates its port as OpenShift's does
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    - {port: 5353, protocol: UDP}
    - {port: 5353, protocol: TCP}
  {{- with $egress.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- ports: # the API server
    {{- range $egress.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with $egress.apiServerTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- range index . 1 }}
- ports:
    {{- toYaml .ports | nindent 4 }}
  to:
    {{- toYaml (.to | default $any) | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* JSON: the engine pods of all managed namespaces as a peer. */ -}}
{{- define "sluice.engine.peer" -}}
{{- $namespaces := include "sluice.namespaces" . | fromJsonArray -}}
{{- $selector := dict -}}
{{- if $namespaces -}}
{{- $selector = dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $namespaces)) -}}
{{- end -}}
{{- dict "namespaceSelector" $selector "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" "sluice-engine")) | toJson -}}
{{- end -}}

{{- /* What the operator makes PodMonitors of engines by; empty: it makes none. */ -}}
{{- define "sluice.podMonitor" -}}
{{- with .Values.metrics.monitors -}}
{{- if .enabled -}}
{{ dict "labels" .labels "intervalSeconds" (int .intervalSeconds) | toJson }}
{{- end -}}
{{- end -}}
{{- end -}}
