{{- define "vcuda.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "vcuda.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "vcuda.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "vcuda.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "vcuda.selector" -}}
app.kubernetes.io/name: {{ include "vcuda.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What pods have beyond their selector: a dict of root and component. */}}
{{- define "vcuda.part" -}}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: {{ include "vcuda.name" .root }}
{{- end -}}

{{/* What every object has beyond its selector. */}}
{{- define "vcuda.made" -}}
{{ include "vcuda.part" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "vcuda.labels" -}}
{{ include "vcuda.selector" . }}
{{ dict "root" . "component" "node" | include "vcuda.made" }}
{{- end -}}

{{- define "vcuda.metricsLabels" -}}
{{ include "vcuda.selector" . }}
{{ dict "root" . "component" "metrics" | include "vcuda.made" }}
{{- end -}}

{{- define "vcuda.policyLabels" -}}
{{ include "vcuda.selector" . }}
{{ dict "root" . "component" "policy" | include "vcuda.made" }}
{{- end -}}

{{/* Not those of the daemon set, whose service and selector would take this pod for its own. */}}
{{- define "vcuda.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "vcuda.name" .) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{ dict "root" . "component" "test" | include "vcuda.made" }}
{{- end -}}

{{/* The nodes that have the daemon set's pods: of the daemon set and of the test. */}}
{{- define "vcuda.nodes" -}}
{{- $ofMode := ternary (dict "vcuda.io/mode" .Values.mode) (dict) .Values.modeLabel -}}
{{- with merge $ofMode .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not .Values.simulator }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "vcuda.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "vcuda.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "vcuda.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A number as TOML wants a float: with a point. */}}
{{- define "vcuda.float" -}}
{{- printf "%.3f" (float64 .) -}}
{{- end -}}

{{/* The manager's capabilities, as a list. */}}
{{- define "vcuda.managerPowers" -}}
{{- $actions := list .Values.audit.action -}}
{{- range .Values.namespaces }}{{ $actions = append $actions (default "report" .auditAction) }}{{ end -}}
{{- $powers := list "SYS_PTRACE" -}}
{{- if has "kill" $actions }}{{ $powers = append $powers "KILL" }}{{ end -}}
{{- if .Values.manager.driverLimits }}{{ $powers = append $powers "SYS_ADMIN" }}{{ end -}}
{{- $powers | toJson -}}
{{- end }}

{{/* Whether pods may be suspended: then the manager needs the CUDA driver, not NVML alone. */}}
{{- define "vcuda.suspends" -}}
{{- $suspends := false -}}
{{- range .Values.namespaces }}{{ $suspends = or $suspends (default false .suspendable) }}{{ end -}}
{{- $suspends -}}
{{- end }}

{{/* Whether suspendable pods take turns in memory that is given more than once. */}}
{{- define "vcuda.overcommits" -}}
{{- $overcommits := gt (float64 .Values.admission.suspendableOvercommit) 1.0 -}}
{{- if and $overcommits (ne (include "vcuda.suspends" .) "true") -}}
{{- fail "admission.suspendableOvercommit is above 1, and no namespace may have suspendable pods: set namespaces.TEAM.suspendable=true for one" -}}
{{- end -}}
{{- $overcommits -}}
{{- end }}

{{/* Where the driver's files are on the node. */}}
{{- define "vcuda.driverRoot" -}}
{{- .Values.simulator | default .Values.driverRoot -}}
{{- end }}

{{/* Whether the pods have a token of the API server. The webhook writes annotations, which the plugin then has to read. */}}
{{- define "vcuda.asksApiServer" -}}
{{- or .Values.apiServer.enabled .Values.cluster.enabled (eq .Values.mode "dra") -}}
{{- end }}

{{/* The bounds of namespaces, as the manager and the webhook read them. */}}
{{- define "vcuda.namespaces" -}}
{{- range $name, $bounds := .Values.namespaces }}
[namespaces.{{ $name | quote }}]
{{- with $bounds.policies }}
policies = {{ toJson . }}
{{- end }}
{{- with $bounds.priorityMax }}
priority_max = {{ . | quote }}
{{- end }}
{{- with $bounds.coresMax }}
cores_max = {{ . | toString | quote }}
{{- end }}
{{- with $bounds.weightMax }}
weight_max = {{ int . }}
{{- end }}
{{- if $bounds.suspendable }}
suspendable = true
{{- end }}
{{- with $bounds.auditAction }}
audit_action = {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}
