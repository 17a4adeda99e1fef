{{/* What the schema cannot say in a sentence. Each value that cannot work, or that is not safe, ends the install here. */}}
{{- define "agentdyno.checks" -}}
{{- include "agentdyno.nameChecks" . -}}
{{- include "agentdyno.networkChecks" . -}}
{{- range $name, $tag := dict
    "image.tag" .Values.image.tag
    "image.host.tag" .Values.image.host.tag
    "image.rig.tag" .Values.image.rig.tag
    "image.mock.tag" .Values.image.mock.tag
    "image.profiler.tag" .Values.image.profiler.tag
    "backend.vllm.image.tag" .Values.backend.vllm.image.tag
    "collector.image.tag" .Values.collector.image.tag
    "tempo.image.tag" .Values.tempo.image.tag
    "prometheus.image.tag" .Values.prometheus.image.tag
    "grafana.image.tag" .Values.grafana.image.tag }}
{{- if eq $tag "latest" }}
{{- fail (printf "%s is `latest`, which is another image tomorrow. Name a version." $name) }}
{{- end }}
{{- end }}
{{- $fixed := dict }}
{{- range include "agentdyno.env" . | fromYamlArray }}{{ $_ := set $fixed .name .value }}{{ end }}
{{- range $name, $_ := .Values.sut.env }}
{{- if hasKey $fixed $name }}
{{- fail (printf "sut.env.%s cannot be set: every process of a run has it as %q, here as in a local run." $name (get $fixed $name)) }}
{{- end }}
{{- if regexMatch "(?i)(key|token|secret|password)" $name }}
{{- fail (printf "sut.env.%s looks like a secret, and would be readable in the Deployment. A backend's key goes into a Secret: backend.url.apiKey.existingSecret." $name) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.backend.kind "url") (not .Values.backend.url.address) }}
{{- fail "backend.kind is `url`, so backend.url.address must be the server's base URL, ending in /v1." }}
{{- end }}
{{- if and (eq .Values.backend.kind "url") (eq .Values.backend.model "agentdyno-mock") }}
{{- fail "backend.kind is `url`, so backend.model must name a model of that server." }}
{{- end }}
{{- if and .Values.load.enabled (eq .Values.run.id "none") }}
{{- fail "load.enabled starts a run, which needs a name of its own: set run.id (first, 20261130-a, ...)." }}
{{- end }}
{{- if gt (float64 .Values.collector.keepPercent) 100.0 }}
{{- fail "collector.keepPercent is a share of the traces, at most 100." }}
{{- end }}
{{- if gt (float64 .Values.backend.vllm.gpuMemoryUtilization) 1.0 }}
{{- fail "backend.vllm.gpuMemoryUtilization is a share of the GPU's memory, at most 1." }}
{{- end }}
{{- if and (eq .Values.backend.kind "vllm") (eq .Values.backend.vllm.revision "e9c932ac1893a49ae0fc497ad6e1e86e2e39af20") (ne .Values.backend.vllm.model "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4") }}
{{- fail (printf "backend.vllm.revision is a commit of Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4. Set it to one of %s, or to \"\" for its newest." .Values.backend.vllm.model) }}
{{- end }}
{{- if ge (int64 .Values.load.keepRecordsSeconds) (int64 .Values.load.deadlineSeconds) }}
{{- fail "load.keepRecordsSeconds must be below load.deadlineSeconds, which ends the pods and with them the records." }}
{{- end }}
{{- if and .Values.collector.enabled .Values.collector.endpoint }}
{{- fail "collector.endpoint is for a cluster that has its own collector: set collector.enabled to false, or leave it empty." }}
{{- end }}
{{- end -}}

{{/* What Kubernetes would refuse only when a run's load begins, or when its first Service is made. */}}
{{- define "agentdyno.nameChecks" -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" .Release.Name) -}}
{{- fail (printf "The release's name %q must begin with a letter and have lower-case letters, digits and dashes alone: Services are named after it." .Release.Name) -}}
{{- end -}}
{{- /* A load worker's host name, with the longest run.id that the schema allows and room for a thousand. */ -}}
{{- $longest := printf "%s-load-worker-%s-%d" .Release.Name (repeat 22 "r") (max 999 (sub (include "agentdyno.workers" . | int64) 1)) -}}
{{- if gt (len $longest) 63 -}}
{{- fail (printf "The release's name %q is too long: it can have %d characters, so that a load worker's name with run and number stays within 63." .Release.Name (sub (add (len .Release.Name) 63) (len $longest))) -}}
{{- end -}}
{{- end -}}

{{- define "agentdyno.networkChecks" -}}
{{- $outside := .Values.networkPolicy.outside -}}
{{- if .Values.networkPolicy.enabled -}}
{{- if not (or $outside.cidrs $outside.namespaces) -}}
{{- range $component, $addresses := include "agentdyno.asked" . | fromJson -}}
{{- fail (printf "The network policies let %s reach nothing at %s: networkPolicy.outside has neither cidrs nor namespaces." $component (join ", " $addresses)) -}}
{{- end -}}
{{- end -}}
{{- if not $outside.cidrs -}}
{{- range $component, $_ := include "agentdyno.world" . | fromJson -}}
{{- fail (printf "networkPolicy.outside.cidrs is empty, so %s does not reach %s." $component (get (dict "backend" "the hub that it downloads its model from (or set backend.vllm.download to false)" "prometheus" "the Kubernetes API (or set prometheus.enabled to false)") $component)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
