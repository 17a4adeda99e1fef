{{/* What the schema cannot say in a sentence. Each value that cannot work, or that is not safe, ends the install here. */}}
{{- define "agentdyno.checks" -}}
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
{{- range $name, $_ := .Values.sut.env }}
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
