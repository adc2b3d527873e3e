{{- define "vcuda.clusterName" -}}
{{- printf "%s-cluster" (include "vcuda.fullname" .) -}}
{{- end -}}

{{/* Not those of the daemon set, whose service and selector would take these pods for its own. */}}
{{- define "vcuda.clusterSelector" -}}
app.kubernetes.io/name: {{ printf "%s-cluster" (include "vcuda.name" .) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vcuda.clusterLabels" -}}
{{ include "vcuda.clusterSelector" . }}
{{ dict "root" . "component" "cluster" | include "vcuda.made" }}
{{- end -}}

{{- define "vcuda.clusterAccount" -}}
{{- include "vcuda.clusterName" . -}}
{{- end -}}

{{/* Whether the webhook makes claims. */}}
{{- define "vcuda.clusterClaims" -}}
{{- or .Values.cluster.claims (eq .Values.mode "dra") -}}
{{- end -}}

{{/* Whether the scheduler extender is asked, and device plugins publish what their GPUs have left. */}}
{{- define "vcuda.extends" -}}
{{- .Values.cluster.extender.enabled -}}
{{- end -}}

{{/* Whether the program has a token of the API server. */}}
{{- define "vcuda.clusterAsksApiServer" -}}
{{- or (eq (include "vcuda.clusterClaims" .) "true") (eq (include "vcuda.extends" .) "true") -}}
{{- end -}}

{{/* CEL: all containers of a pod. */}}
{{- define "vcuda.allContainers" -}}
(object.spec.containers + object.spec.?initContainers.orValue([]))
{{- end -}}

{{/* CEL: the pod asks for a share, by a name of ours or of another system, or has annotations of ours. */}}
{{- define "vcuda.asksForShare" -}}
{{- $ours := list -}}
{{- range list .Values.resources.gpu .Values.resources.memory .Values.resources.cores .Values.resources.suspendableMemory }}{{ $ours = append $ours (replace "." "[.]" .) }}{{ end -}}
{{- $others := "nvidia[.]com/(gpumem|gpucores|priority)|tencent[.]com/vcuda-|tke[.]cloud[.]tencent[.]com/qgpu-|aliyun[.]com/gpu-|volcano[.]sh/vgpu-|koordinator[.]sh/gpu|elasticgpu[.]io/gpu-" -}}
{{ include "vcuda.allContainers" . }}.exists(c, [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(amounts,
          amounts.exists(name, name.matches("^({{ join "|" $ours }}|{{ $others }})")))
            || c.?env.orValue([]).exists(variable, variable.name.startsWith("NVIDIA_GPU_MEMORY_")))
          || object.?metadata.?annotations.orValue({}).exists(name,
            name.matches("^(vcuda[.]io/|nvidia[.]com/container[.][^.]*[.]gpu-|kai[.]scheduler/container[.][^.]*[.]gpu-)")
            || (name.matches("^gpu-(fraction|memory)([.]limit)?$") && object.spec.?schedulerName.orValue("").matches("^(kai|runai)-scheduler$")))
          || object.spec.?resourceClaims.orValue([]).exists(claim, claim.name == "vcuda")
{{- end -}}

{{/* CEL: the pod has a claim, of which driver is not known here. */}}
{{- define "vcuda.hasClaim" -}}
size(object.spec.?resourceClaims.orValue([])) > 0
{{- end -}}

{{/* CEL: a variable, a mount or an annotation, by which NVIDIA's toolkit or the container runtime is told GPUs. */}}
{{- define "vcuda.choosesGpus" -}}
({{ include "vcuda.allContainers" . }} + object.spec.?ephemeralContainers.orValue([])).exists(c,
          c.?env.orValue([]).exists(variable, variable.name == "NVIDIA_VISIBLE_DEVICES")
          || c.?volumeMounts.orValue([]).exists(mount, mount.mountPath.contains("nvidia-container-devices")))
          || object.?metadata.?annotations.orValue({}).exists(name, name.matches({{ include "vcuda.ofRuntimes" . | quote }}))
{{- end -}}

{{/* Annotations that container runtimes follow, as a regular expression. */}}
{{- define "vcuda.ofRuntimes" -}}
^([^/]*[.])?(cdi[.]k8s[.]io|nri[.]io|nri[.]containerd[.]io)(/|$)|^io[.]kubernetes[.]cri-o[.]
{{- end -}}

{{/* How the API server asks the webhook: a dict of root, authority and path. */}}
{{- define "vcuda.webhookClient" -}}
{{- $name := include "vcuda.clusterName" .root -}}
admissionReviewVersions: [v1]
matchPolicy: Equivalent
failurePolicy: {{ .root.Values.cluster.failurePolicy }}
timeoutSeconds: {{ .root.Values.cluster.timeoutSeconds }}
clientConfig:
  {{- with .authority }}
  caBundle: {{ . }}
  {{- end }}
  service: {name: {{ $name }}, namespace: {{ .root.Release.Namespace }}, port: 443, path: {{ .path }}}
{{- end -}}

{{/* CEL: the pod asks for a share by our own names. */}}
{{- define "vcuda.asksByCounts" -}}
{{ include "vcuda.allContainers" . }}.exists(c, c.?resources.?limits.orValue({}).exists(name,
        name in [{{ .Values.resources.gpu | quote }}, {{ .Values.resources.memory | quote }}, {{ .Values.resources.cores | quote }}, {{ .Values.resources.suspendableMemory | quote }}]))
{{- end -}}
