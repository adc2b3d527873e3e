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

{{- define "vcuda.labels" -}}
{{ include "vcuda.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "vcuda.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "vcuda.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
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
{{- if has "kill" $actions }}[SYS_PTRACE, KILL]{{ else }}[SYS_PTRACE]{{ end -}}
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
